#include "model/chat_template/interpreter.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/chat_template/arguments.h"
#include "model/chat_template/chat_template.h"
#include "model/chat_template/filters.h"
#include "model/chat_template/functions.h"
#include "model/chat_template/methods.h"
#include "model/chat_template/operators.h"
#include "model/chat_template/predicates.h"

namespace baton::model::jinja {

// A macro and where it was defined: its body sees the variables there.
struct MacroValue {
  const Macro* macro;
  size_t frame;     // Index of the defining frame …
  uint64_t serial;  // … and its number, by which one that is gone is known.
};

namespace {

enum class Flow { NEXT, BREAK, CONTINUE };

class Interpreter {
 public:
  Interpreter(const Template& parsed, Runtime& runtime)
      : parsed_(parsed), runtime_(runtime), output_(runtime), out_(&output_) {}

  absl::StatusOr<std::string> Run(const Variables& variables) {
    PushFrame(0);
    for (NameId name = 0; name < parsed_.names.size(); ++name) {
      const auto variable = variables.find(parsed_.names[name]);
      if (variable != variables.end()) {
        SetVariable(name, variable->second);
      } else if (const Function* function = FindFunction(parsed_.names[name])) {
        SetVariable(name, function);
      }
    }
    RETURN_IF_ERROR(Execute(parsed_.body).status());
    return output_.TakeString();
  }

 private:
  // Variables that were set in one block; others are looked for in the parent.
  struct Frame {
    size_t parent;
    uint64_t serial;
    absl::flat_hash_map<NameId, Value> variables;
  };

  void PushFrame(size_t parent) {
    frames_.push_back({parent, ++last_serial_, {}});
    current_ = frames_.size() - 1;
  }

  // A frame of its own while it lives, and then the one before.
  class Scope {
   public:
    Scope(Interpreter& interpreter, size_t parent)
        : interpreter_(interpreter), before_(interpreter.current_) {
      interpreter_.PushFrame(parent);
    }
    explicit Scope(Interpreter& interpreter) : Scope(interpreter, interpreter.current_) {}
    ~Scope() {
      interpreter_.frames_.pop_back();
      interpreter_.current_ = before_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Interpreter& interpreter_;
    const size_t before_;
  };

  // Takes what is printed while it lives.
  class Capture {
   public:
    explicit Capture(Interpreter& interpreter)
        : interpreter_(interpreter), before_(interpreter.out_), text_(interpreter.runtime_) {
      interpreter_.out_ = &text_;
    }
    ~Capture() { interpreter_.out_ = before_; }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    absl::StatusOr<Value> TakeValue() { return text_.TakeValue(); }

   private:
    Interpreter& interpreter_;
    TextBuilder* const before_;
    TextBuilder text_;
  };

  // Counts one level while it lives.
  class Level {
   public:
    explicit Level(uint32_t& depth) : depth_(depth) { ++depth_; }
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    uint32_t& depth_;
  };

  // Names the innermost place where an error arose, unless the template raised it in its own words.
  absl::Status At(Position position, const absl::Status& status) {
    if (located_ || runtime_.refused()) return status;
    located_ = true;
    return absl::Status(status.code(),
                        absl::StrCat("chat template ", ToString(position), ": ", status.message()));
  }

  absl::Status CheckDepth() const {
    if (depth_ <= kEvaluationDepthMax) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("evaluation is nested deeper than ", kEvaluationDepthMax, " levels"));
  }

  void SetVariable(NameId name, Value value) {
    frames_[current_].variables.insert_or_assign(name, std::move(value));
  }

  absl::StatusOr<Value> Variable(NameId name) {
    for (size_t frame = current_;; frame = frames_[frame].parent) {
      const auto found = frames_[frame].variables.find(name);
      if (found != frames_[frame].variables.end()) return found->second;
      if (frame == 0) return Value(Undefined{parsed_.names[name]});
      RETURN_IF_ERROR(runtime_.budget().Spend());
    }
  }

  absl::Status Assign(const Target& target, const Value& value) {
    if (!target.unpacks) {
      SetVariable(target.names[0], value);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const auto list, Iterate(runtime_, value));
    if (list->items.size() != target.names.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot unpack ", list->items.size(), " values into ", target.names.size()));
    }
    for (size_t i = 0; i < target.names.size(); ++i) SetVariable(target.names[i], list->items[i]);
    return absl::OkStatus();
  }

  // --- Statements.

  absl::StatusOr<Flow> Execute(const Block& block) {
    const Level level(depth_);
    RETURN_IF_ERROR(CheckDepth());
    for (const Statement& statement : block) {
      RETURN_IF_ERROR(runtime_.budget().Spend());
      const absl::StatusOr<Flow> flow =
          std::visit([&](const auto& node) { return ExecuteNode(node); }, statement.node);
      if (!flow.ok()) return At(statement.position, flow.status());
      if (*flow != Flow::NEXT) return flow;
    }
    return Flow::NEXT;
  }

  absl::StatusOr<Flow> ExecuteNode(const TextStatement& text) {
    RETURN_IF_ERROR(out_->Append(text.text));
    return Flow::NEXT;
  }

  absl::StatusOr<Flow> ExecuteNode(const PrintStatement& print) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*print.value));
    RETURN_IF_ERROR(AppendText(value, runtime_, *out_));
    return Flow::NEXT;
  }

  absl::StatusOr<Flow> ExecuteNode(const IfStatement& statement) {
    for (const IfStatement::Branch& branch : statement.branches) {
      ASSIGN_OR_RETURN(const Value condition, Evaluate(*branch.condition));
      if (IsTrue(condition)) return Execute(branch.body);
    }
    return Execute(statement.otherwise);
  }

  absl::StatusOr<Flow> ExecuteNode(const ForStatement& statement) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.items));
    ASSIGN_OR_RETURN(std::shared_ptr<const List> items, Iterate(runtime_, value));
    if (statement.filter != nullptr) {
      ASSIGN_OR_RETURN(items, FilterItems(statement, *items));
    }
    const Scope scope(*this);
    if (items->items.empty()) return Execute(statement.otherwise);
    ASSIGN_OR_RETURN(const std::shared_ptr<Loop> loop, runtime_.NewLoop(items));
    for (; loop->index < items->items.size(); ++loop->index) {
      RETURN_IF_ERROR(runtime_.budget().Spend());
      frames_[current_].variables.clear();
      SetVariable(LOOP_NAME, std::shared_ptr<const Loop>(loop));
      RETURN_IF_ERROR(Assign(statement.target, items->items[loop->index]));
      ASSIGN_OR_RETURN(const Flow flow, Execute(statement.body));
      if (flow == Flow::BREAK) break;
    }
    return Flow::NEXT;
  }

  absl::StatusOr<std::shared_ptr<const List>> FilterItems(const ForStatement& statement,
                                                          const List& items) {
    const Scope scope(*this);
    std::vector<Value> kept;
    for (const Value& item : items.items) {
      RETURN_IF_ERROR(Assign(statement.target, item));
      ASSIGN_OR_RETURN(const Value keeps, Evaluate(*statement.filter));
      if (IsTrue(keeps)) kept.push_back(item);
    }
    ASSIGN_OR_RETURN(const Value list, runtime_.NewList(std::move(kept)));
    return list.shared_list();
  }

  absl::StatusOr<Flow> ExecuteNode(const SetStatement& statement) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.value));
    RETURN_IF_ERROR(Assign(statement.target, value));
    return Flow::NEXT;
  }

  absl::StatusOr<Flow> ExecuteNode(const SetAttributeStatement& statement) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*statement.value));
    ASSIGN_OR_RETURN(const Value space, Variable(statement.space));
    if (space.space() == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", parsed_.names[statement.space],
                       "' is not a namespace: its attributes cannot be set"));
    }
    RETURN_IF_ERROR(runtime_.SetAttribute(*space.space(), statement.attribute, std::move(value)));
    return Flow::NEXT;
  }

  absl::StatusOr<Flow> ExecuteNode(const SetBlockStatement& statement) {
    ASSIGN_OR_RETURN(Value value, ExecuteFiltered(statement.body, statement.filters));
    SetVariable(statement.name, std::move(value));
    return Flow::NEXT;
  }

  absl::StatusOr<Flow> ExecuteNode(const FilterStatement& statement) {
    ASSIGN_OR_RETURN(const Value value, ExecuteFiltered(statement.body, statement.filters));
    RETURN_IF_ERROR(AppendText(value, runtime_, *out_));
    return Flow::NEXT;
  }

  // What the block prints, filtered.
  absl::StatusOr<Value> ExecuteFiltered(const Block& body, const std::vector<FilterStep>& filters) {
    const Scope scope(*this);
    Capture capture(*this);
    RETURN_IF_ERROR(Execute(body).status());
    ASSIGN_OR_RETURN(Value value, capture.TakeValue());
    for (const FilterStep& step : filters) {
      ASSIGN_OR_RETURN(value, ApplyFilter(step, value));
    }
    return value;
  }

  absl::StatusOr<Flow> ExecuteNode(const WithStatement& statement) {
    std::vector<Value> values;
    for (const auto& [name, expression] : statement.variables) {
      ASSIGN_OR_RETURN(values.emplace_back(), Evaluate(*expression));
    }
    const Scope scope(*this);
    for (size_t i = 0; i < values.size(); ++i) {
      SetVariable(statement.variables[i].first, std::move(values[i]));
    }
    return Execute(statement.body);
  }

  absl::StatusOr<Flow> ExecuteNode(const MacroStatement& statement) {
    SetVariable(statement.name, MakeMacro(*statement.macro));
    return Flow::NEXT;
  }

  absl::StatusOr<Flow> ExecuteNode(const CallStatement& statement) {
    const CallNode& call = std::get<CallNode>(statement.call->node);
    ASSIGN_OR_RETURN(const Value callee, Evaluate(*call.callee));
    ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(call.arguments));
    arguments.named.emplace_back(kKnownNames[CALLER_NAME], MakeMacro(*statement.caller));
    ASSIGN_OR_RETURN(const Value value, Call(callee, arguments));
    RETURN_IF_ERROR(AppendText(value, runtime_, *out_));
    return Flow::NEXT;
  }

  absl::StatusOr<Flow> ExecuteNode(const BreakStatement&) { return Flow::BREAK; }
  absl::StatusOr<Flow> ExecuteNode(const ContinueStatement&) { return Flow::CONTINUE; }

  // --- Calls.

  Value MakeMacro(const Macro& macro) const {
    return std::make_shared<const MacroValue>(
        MacroValue{&macro, current_, frames_[current_].serial});
  }

  absl::StatusOr<Arguments> EvaluateArguments(const ArgumentNodes& nodes) {
    Arguments arguments;
    for (const ExpressionPtr& node : nodes.positional) {
      ASSIGN_OR_RETURN(arguments.positional.emplace_back(), Evaluate(*node));
    }
    for (const auto& [name, node] : nodes.named) {
      ASSIGN_OR_RETURN(Value value, Evaluate(*node));
      arguments.named.emplace_back(name, std::move(value));
    }
    return arguments;
  }

  absl::StatusOr<Value> Call(const Value& callee, const Arguments& arguments) {
    if (callee.function()) return callee.function()->call(runtime_, arguments);
    if (callee.method()) return CallMethod(runtime_, *callee.method(), arguments);
    if (callee.macro()) return CallMacro(*callee.macro(), arguments);
    if (callee.is_undefined()) return UndefinedError(callee);
    return absl::InvalidArgumentError(
        absl::StrCat("'", callee.type_name(), "' object is not callable"));
  }

  absl::StatusOr<Value> CallMacro(const MacroValue& value, const Arguments& arguments) {
    const Macro& macro = *value.macro;
    if (value.frame >= frames_.size() || frames_[value.frame].serial != value.serial) {
      return absl::InvalidArgumentError(
          absl::StrCat("macro '", macro.name, "' is called outside of the block that defines it"));
    }
    const Level call_level(call_depth_);
    if (call_depth_ > ChatTemplate::kNestingMax) {
      return absl::ResourceExhaustedError(absl::StrCat("macros call one another deeper than ",
                                                       ChatTemplate::kNestingMax, " levels"));
    }
    const Scope scope(*this, value.frame);
    RETURN_IF_ERROR(BindMacro(macro, arguments));
    Capture capture(*this);
    RETURN_IF_ERROR(Execute(macro.body).status());
    return capture.TakeValue();
  }

  // Sets the macro's parameters in the current frame.
  absl::Status BindMacro(const Macro& macro, const Arguments& arguments) {
    const size_t parameter_count = macro.parameters.size();
    std::vector<bool> named_used(arguments.named.size());
    for (size_t i = 0; i < parameter_count; ++i) {
      const MacroParameter& parameter = macro.parameters[i];
      const absl::string_view name = parsed_.names[parameter.name];
      std::optional<Value> value;
      if (i < arguments.positional.size()) value = arguments.positional[i];
      for (size_t j = 0; j < arguments.named.size(); ++j) {
        if (arguments.named[j].first != name) continue;
        if (value) {
          return absl::InvalidArgumentError(
              absl::StrCat("macro '", macro.name, "' got twice argument '", name, "'"));
        }
        value = arguments.named[j].second;
        named_used[j] = true;
      }
      if (!value && parameter.default_value != nullptr) {
        ASSIGN_OR_RETURN(value, Evaluate(*parameter.default_value));
      }
      SetVariable(parameter.name, value ? *std::move(value) : Value(Undefined{name}));
    }
    return BindMacroRest(macro, arguments, named_used);
  }

  // What has no parameter goes to varargs, kwargs and caller, if the macro speaks of them.
  absl::Status BindMacroRest(const Macro& macro, const Arguments& arguments,
                             const std::vector<bool>& named_used) {
    const size_t parameter_count = macro.parameters.size();
    if (arguments.positional.size() > parameter_count && !macro.takes_positional) {
      return absl::InvalidArgumentError(absl::StrCat("macro '", macro.name, "' takes at most ",
                                                     parameter_count, " arguments, got ",
                                                     arguments.positional.size()));
    }
    if (macro.takes_positional) {
      std::vector<Value> rest;
      for (size_t i = parameter_count; i < arguments.positional.size(); ++i) {
        rest.push_back(arguments.positional[i]);
      }
      ASSIGN_OR_RETURN(Value varargs, runtime_.NewTuple(std::move(rest)));
      SetVariable(VARARGS_NAME, std::move(varargs));
    }
    if (macro.takes_caller) SetVariable(CALLER_NAME, Undefined{kKnownNames[CALLER_NAME]});
    auto rest = std::make_shared<Dict>();
    for (size_t i = 0; i < arguments.named.size(); ++i) {
      const auto& [name, value] = arguments.named[i];
      if (named_used[i]) continue;
      if (macro.takes_caller && name == kKnownNames[CALLER_NAME]) {
        SetVariable(CALLER_NAME, value);
        continue;
      }
      if (!macro.takes_named) {
        return absl::InvalidArgumentError(
            absl::StrCat("macro '", macro.name, "' has no argument '", name, "'"));
      }
      ASSIGN_OR_RETURN(Value key, runtime_.NewText(name));
      rest->Set(std::move(key), value);
    }
    if (macro.takes_named) {
      ASSIGN_OR_RETURN(Value kwargs, runtime_.NewDict(std::move(rest)));
      SetVariable(KWARGS_NAME, std::move(kwargs));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Value> ApplyFilter(const FilterStep& step, const Value& input) {
    ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(step.arguments));
    absl::StatusOr<Value> value = CallFilter(runtime_, *step.spec, input, arguments);
    if (!value.ok()) return At(step.position, value.status());
    return value;
  }

  // --- Expressions.

  absl::StatusOr<Value> Evaluate(const Expression& expression) {
    const Level level(depth_);
    absl::StatusOr<Value> value = Value();
    absl::Status status = CheckDepth();
    if (status.ok()) status = runtime_.budget().Spend();
    if (status.ok()) {
      value = std::visit([&](const auto& node) { return EvaluateNode(node); }, expression.node);
      status = value.status();
    }
    if (!status.ok()) return At(expression.position, status);
    return value;
  }

  absl::StatusOr<Value> EvaluateNode(const ConstantNode& constant) { return constant.value; }
  absl::StatusOr<Value> EvaluateNode(const NameNode& name) { return Variable(name.name); }

  absl::StatusOr<Value> EvaluateNode(const SequenceNode& sequence) {
    std::vector<Value> items;
    for (const ExpressionPtr& item : sequence.items) {
      ASSIGN_OR_RETURN(items.emplace_back(), Evaluate(*item));
    }
    return sequence.is_tuple ? runtime_.NewTuple(std::move(items))
                             : runtime_.NewList(std::move(items));
  }

  absl::StatusOr<Value> EvaluateNode(const DictNode& node) {
    auto dict = std::make_shared<Dict>();
    for (const auto& [key_node, value_node] : node.entries) {
      ASSIGN_OR_RETURN(Value key, Evaluate(*key_node));
      if (key.text() == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("keys of a dict must be strings, one is ", key.type_name()));
      }
      ASSIGN_OR_RETURN(Value value, Evaluate(*value_node));
      dict->Set(std::move(key), std::move(value));
    }
    return runtime_.NewDict(std::move(dict));
  }

  absl::StatusOr<Value> EvaluateNode(const AttributeNode& attribute) {
    ASSIGN_OR_RETURN(const Value object, Evaluate(*attribute.object));
    return GetAttribute(runtime_, object, attribute.name);
  }

  absl::StatusOr<Value> EvaluateNode(const SubscriptNode& subscript) {
    ASSIGN_OR_RETURN(const Value object, Evaluate(*subscript.object));
    ASSIGN_OR_RETURN(const Value key, Evaluate(*subscript.key));
    ASSIGN_OR_RETURN(Value value, GetItem(runtime_, object, key));
    return value.is_undefined() ? Value(Undefined{ConstantName(*subscript.key)}) : std::move(value);
  }

  // The text of a constant, which lives as long as the template; empty for others.
  static absl::string_view ConstantName(const Expression& key) {
    const auto* constant = std::get_if<ConstantNode>(&key.node);
    if (constant == nullptr || constant->value.text() == nullptr) return "";
    return *constant->value.text();
  }

  absl::StatusOr<Value> EvaluateNode(const SliceNode& slice) {
    ASSIGN_OR_RETURN(const Value object, Evaluate(*slice.object));
    SliceBounds bounds;
    const std::pair<const ExpressionPtr&, Value&> kBounds[] = {
        {slice.start, bounds.start}, {slice.stop, bounds.stop}, {slice.step, bounds.step}};
    for (const auto& [node, bound] : kBounds) {
      if (node == nullptr) continue;
      ASSIGN_OR_RETURN(bound, Evaluate(*node));
    }
    return GetSlice(runtime_, object, bounds);
  }

  absl::StatusOr<Value> EvaluateNode(const CallNode& call) {
    ASSIGN_OR_RETURN(const Value callee, Evaluate(*call.callee));
    ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(call.arguments));
    return Call(callee, arguments);
  }

  absl::StatusOr<Value> EvaluateNode(const FilterNode& filter) {
    ASSIGN_OR_RETURN(const Value input, Evaluate(*filter.input));
    return ApplyFilter(filter.step, input);
  }

  absl::StatusOr<Value> EvaluateNode(const TestNode& test) {
    ASSIGN_OR_RETURN(const Value input, Evaluate(*test.input));
    ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(test.arguments));
    ASSIGN_OR_RETURN(const bool holds, CallTest(runtime_, *test.spec, input, arguments));
    return Value(holds);
  }

  absl::StatusOr<Value> EvaluateNode(const UnaryNode& unary) {
    ASSIGN_OR_RETURN(const Value operand, Evaluate(*unary.operand));
    if (unary.op == UnaryOperator::NOT) return Value(!IsTrue(operand));
    ASSIGN_OR_RETURN(const Value negative, Negate(operand));
    return unary.op == UnaryOperator::NEGATE ? negative : operand;
  }

  absl::StatusOr<Value> EvaluateNode(const BinaryNode& binary) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*binary.first));
    // A sum of texts is joined in one go, not copied once a term.
    std::optional<TextBuilder> joined;
    for (const BinaryNode::Step& step : binary.steps) {
      ASSIGN_OR_RETURN(const Value operand, Evaluate(*step.operand));
      const bool joins = step.op == BinaryOperator::CONCATENATE ||
                         (step.op == BinaryOperator::ADD && operand.text() &&
                          (joined.has_value() || value.text()));
      if (joins) {
        if (!joined) RETURN_IF_ERROR(AppendText(value, runtime_, joined.emplace(runtime_)));
        RETURN_IF_ERROR(AppendText(operand, runtime_, *joined));
        continue;
      }
      if (joined) {
        ASSIGN_OR_RETURN(value, joined->TakeValue());
        joined.reset();
      }
      ASSIGN_OR_RETURN(value, Apply(runtime_, step.op, value, operand));
    }
    return joined ? joined->TakeValue() : value;
  }

  absl::StatusOr<Value> EvaluateNode(const CompareNode& comparison) {
    ASSIGN_OR_RETURN(Value left, Evaluate(*comparison.first));
    for (const CompareNode::Step& step : comparison.steps) {
      ASSIGN_OR_RETURN(Value right, Evaluate(*step.operand));
      ASSIGN_OR_RETURN(const bool holds, Compare(runtime_, step.op, left, right));
      if (!holds) return Value(false);
      left = std::move(right);
    }
    return Value(true);
  }

  absl::StatusOr<Value> EvaluateNode(const LogicNode& logic) {
    Value value;
    for (const ExpressionPtr& operand : logic.operands) {
      ASSIGN_OR_RETURN(value, Evaluate(*operand));
      if (IsTrue(value) != logic.is_and) return value;
    }
    return value;
  }

  absl::StatusOr<Value> EvaluateNode(const ConditionalNode& conditional) {
    ASSIGN_OR_RETURN(const Value condition, Evaluate(*conditional.condition));
    if (IsTrue(condition)) return Evaluate(*conditional.then);
    if (conditional.otherwise != nullptr) return Evaluate(*conditional.otherwise);
    return Value(Undefined{"the else of an inline if"});
  }

  const Template& parsed_;
  Runtime& runtime_;
  TextBuilder output_;
  TextBuilder* out_;  // What is printed goes here: output_, or the innermost Capture.
  std::vector<Frame> frames_;
  size_t current_ = 0;
  uint64_t last_serial_ = 0;
  uint32_t depth_ = 0;       // Of blocks and expressions under evaluation.
  uint32_t call_depth_ = 0;  // Of macros.
  bool located_ = false;     // The error on its way out has its position.
};

}  // namespace

absl::StatusOr<std::string> Interpret(const Template& parsed, const Variables& variables,
                                      Runtime& runtime) {
  return Interpreter(parsed, runtime).Run(variables);
}

}  // namespace baton::model::jinja
