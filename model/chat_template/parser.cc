#include "model/chat_template/parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "model/chat_template/chat_template.h"
#include "model/chat_template/filters.h"
#include "model/chat_template/lexer.h"
#include "model/chat_template/predicates.h"

namespace baton::model::jinja {
namespace {

constexpr absl::string_view kStatements =
    "break, call, continue, filter, for, generation, if, macro, raw, set, with";

// Words that cannot begin the argument of a test: `x is defined and …`.
bool EndsTest(const Token& token) {
  return token.kind == TokenKind::NAME &&
         (token.text == "else" || token.text == "or" || token.text == "and" || token.text == "if" ||
          token.text == "in" || token.text == "not");
}

ExpressionPtr Make(Position position, decltype(Expression::node) node) {
  return std::make_unique<const Expression>(Expression{position, std::move(node)});
}

Value ConstantText(std::string text) {
  return std::make_shared<const Text>(Text{std::move(text), {}});
}

// Recursive descent; each method takes the tokens of what it is named for. The precedences are
// Jinja's:
//   if-else < or < and < not < comparisons < + - < ~ < * / // % < ** < unary < . [] () | is
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
    for (const absl::string_view name : kKnownNames) Intern(std::string(name));
  }

  absl::StatusOr<std::unique_ptr<const Template>> Run() {
    auto parsed = std::make_unique<Template>();
    ASSIGN_OR_RETURN(parsed->body, ParseBlock({}));
    parsed->names.resize(names_.size());
    for (auto& [name, id] : names_) parsed->names[id] = name;
    return parsed;
  }

 private:
  // Counts one level of blocks or expressions while it lives.
  class Level {
   public:
    explicit Level(uint32_t& depth) : depth_(depth) { ++depth_; }
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    uint32_t& depth_;
  };
  // `links`: what is chained at this level (`a.b.c|d`), which makes the tree as much deeper.
  absl::Status CheckDepth(uint32_t links = 0) const {
    if (depth_ + links <= ChatTemplate::kNestingMax) return absl::OkStatus();
    return SyntaxError(Next().position,
                       absl::StrCat("nested deeper than ", ChatTemplate::kNestingMax, " levels"));
  }

  // --- Tokens.

  const Token& Next() const { return tokens_[at_]; }
  const Token& AfterNext() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token Take() {
    Token token = Next();
    if (token.kind != TokenKind::END) ++at_;
    return token;
  }
  bool NextIs(TokenKind kind) const { return Next().kind == kind; }
  bool NextIs(TokenKind kind, absl::string_view text) const {
    return NextIs(kind) && Next().text == text;
  }
  bool NextIsOperator(absl::string_view text) const { return NextIs(TokenKind::OPERATOR, text); }
  bool NextIsWord(absl::string_view word) const { return NextIs(TokenKind::NAME, word); }
  bool TakeOperator(absl::string_view text) {
    if (!NextIsOperator(text)) return false;
    ++at_;
    return true;
  }
  bool TakeWord(absl::string_view word) {
    if (!NextIsWord(word)) return false;
    ++at_;
    return true;
  }
  static std::string Describe(const Token& token) {
    if (token.kind == TokenKind::END) return "the end of the template";
    if (token.kind == TokenKind::TEXT) return "text";
    return absl::StrCat("'", token.text, "'");
  }
  absl::Status Unexpected(absl::string_view expected) const {
    return SyntaxError(Next().position,
                       absl::StrCat("expected ", expected, ", found ", Describe(Next())));
  }
  absl::Status ExpectOperator(absl::string_view text) {
    return TakeOperator(text) ? absl::OkStatus() : Unexpected(absl::StrCat("'", text, "'"));
  }
  absl::Status ExpectBlockEnd() {
    if (!NextIs(TokenKind::BLOCK_END)) return Unexpected("%}");
    ++at_;
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> ExpectName() {
    if (!NextIs(TokenKind::NAME)) return Unexpected("a name");
    return Take().text;
  }
  absl::StatusOr<NameId> ExpectNameId() {
    ASSIGN_OR_RETURN(const std::string name, ExpectName());
    return Intern(name);
  }
  NameId Intern(const std::string& name) {
    return names_.try_emplace(name, static_cast<NameId>(names_.size())).first->second;
  }

  // --- Statements.

  // Up to a block tag that begins with one of `ends`, which is left; an empty list: to the end of
  // the template.
  absl::StatusOr<Block> ParseBlock(std::initializer_list<absl::string_view> ends) {
    const Level level(depth_);
    RETURN_IF_ERROR(CheckDepth());
    Block block;
    while (true) {
      const Position position = Next().position;
      switch (Next().kind) {
        case TokenKind::TEXT:
          block.push_back({position, TextStatement{Take().text}});
          break;
        case TokenKind::VARIABLE_BEGIN: {
          Take();
          ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple());
          if (!NextIs(TokenKind::VARIABLE_END)) return Unexpected("}}");
          Take();
          block.push_back({position, PrintStatement{std::move(value)}});
          break;
        }
        case TokenKind::BLOCK_BEGIN: {
          if (AfterNext().kind == TokenKind::NAME &&
              std::find(ends.begin(), ends.end(), AfterNext().text) != ends.end()) {
            return block;
          }
          Take();
          RETURN_IF_ERROR(ParseStatement(position, block));
          break;
        }
        default:
          if (ends.size() == 0) return block;
          return Unexpected(absl::StrCat("{% ", absl::StrJoin(ends, " %} or {% "), " %}"));
      }
    }
  }

  // Takes `{% word %}`, where a block stopped.
  absl::Status TakeEnd(absl::string_view word) {
    Take();
    Take();
    if (NextIs(TokenKind::BLOCK_END)) return ExpectBlockEnd();
    return Unexpected(absl::StrCat("%} after ", word));
  }

  absl::Status ParseStatement(Position position, Block& block) {
    ASSIGN_OR_RETURN(const std::string word, ExpectName());
    if (word == "if") return ParseIf(position, block);
    if (word == "for") return ParseFor(position, block);
    if (word == "set") return ParseSet(position, block);
    if (word == "macro") return ParseMacro(position, block);
    if (word == "call") return ParseCallBlock(position, block);
    if (word == "filter") return ParseFilterBlock(position, block);
    if (word == "with") return ParseWith(position, block);
    if (word == "generation") return ParseGeneration(position, block);
    if (word == "break" || word == "continue") {
      if (loops_ == 0) return SyntaxError(position, absl::StrCat("'", word, "' outside of a for"));
      if (word == "break") {
        block.push_back({position, BreakStatement{}});
      } else {
        block.push_back({position, ContinueStatement{}});
      }
      return ExpectBlockEnd();
    }
    return SyntaxError(
        position, absl::StrCat("statement '", word, "' is not known; known are ", kStatements));
  }

  absl::Status ParseIf(Position position, Block& block) {
    IfStatement statement;
    do {
      ASSIGN_OR_RETURN(ExpressionPtr condition, ParseTuple());
      RETURN_IF_ERROR(ExpectBlockEnd());
      ASSIGN_OR_RETURN(Block body, ParseBlock({"elif", "else", "endif"}));
      statement.branches.push_back({std::move(condition), std::move(body)});
    } while (TakeElif());
    if (AfterNext().text == "else") {
      RETURN_IF_ERROR(TakeEnd("else"));
      ASSIGN_OR_RETURN(statement.otherwise, ParseBlock({"endif"}));
    }
    RETURN_IF_ERROR(TakeEnd("endif"));
    block.push_back({position, std::move(statement)});
    return absl::OkStatus();
  }

  bool TakeElif() {
    if (AfterNext().text != "elif") return false;
    Take();
    Take();
    return true;
  }

  absl::Status ParseFor(Position position, Block& block) {
    ForStatement statement;
    ASSIGN_OR_RETURN(statement.target, ParseTarget());
    if (!TakeWord("in")) return Unexpected("'in'");
    // Not a conditional: `if` begins the loop's filter.
    ASSIGN_OR_RETURN(statement.items, ParseTupleOf(&Parser::ParseOr));
    if (TakeWord("if")) {
      ASSIGN_OR_RETURN(statement.filter, ParseExpression());
    }
    if (NextIsWord("recursive")) {
      return SyntaxError(Next().position, "recursive loops are not supported");
    }
    RETURN_IF_ERROR(ExpectBlockEnd());
    ++loops_;
    ASSIGN_OR_RETURN(statement.body, ParseBlock({"else", "endfor"}));
    --loops_;
    if (AfterNext().text == "else") {
      RETURN_IF_ERROR(TakeEnd("else"));
      ASSIGN_OR_RETURN(statement.otherwise, ParseBlock({"endfor"}));
    }
    RETURN_IF_ERROR(TakeEnd("endfor"));
    block.push_back({position, std::move(statement)});
    return absl::OkStatus();
  }

  absl::StatusOr<Target> ParseTarget() {
    Target target;
    const bool in_parentheses = TakeOperator("(");
    do {
      if (!target.names.empty() && !NextIs(TokenKind::NAME)) break;  // A comma at the end.
      ASSIGN_OR_RETURN(const NameId name, ExpectNameId());
      target.names.push_back(name);
    } while (TakeOperator(",") && (target.unpacks = true));
    if (in_parentheses) RETURN_IF_ERROR(ExpectOperator(")"));
    return target;
  }

  absl::Status ParseSet(Position position, Block& block) {
    if (NextIs(TokenKind::NAME) && AfterNext().kind == TokenKind::OPERATOR &&
        AfterNext().text == ".") {
      SetAttributeStatement statement;
      ASSIGN_OR_RETURN(statement.space, ExpectNameId());
      RETURN_IF_ERROR(ExpectOperator("."));
      ASSIGN_OR_RETURN(statement.attribute, ExpectName());
      RETURN_IF_ERROR(ExpectOperator("="));
      ASSIGN_OR_RETURN(statement.value, ParseTuple());
      block.push_back({position, std::move(statement)});
      return ExpectBlockEnd();
    }
    ASSIGN_OR_RETURN(Target target, ParseTarget());
    if (TakeOperator("=")) {
      ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple());
      block.push_back({position, SetStatement{std::move(target), std::move(value)}});
      return ExpectBlockEnd();
    }
    if (target.unpacks) return Unexpected("'='");
    SetBlockStatement statement;
    statement.name = target.names[0];
    if (TakeOperator("|")) {
      ASSIGN_OR_RETURN(statement.filters, ParseFilterSteps());
    }
    RETURN_IF_ERROR(ExpectBlockEnd());
    ASSIGN_OR_RETURN(statement.body, ParseBlock({"endset"}));
    RETURN_IF_ERROR(TakeEnd("endset"));
    block.push_back({position, std::move(statement)});
    return absl::OkStatus();
  }

  absl::Status ParseFilterBlock(Position position, Block& block) {
    FilterStatement statement;
    ASSIGN_OR_RETURN(statement.filters, ParseFilterSteps());
    RETURN_IF_ERROR(ExpectBlockEnd());
    ASSIGN_OR_RETURN(statement.body, ParseBlock({"endfilter"}));
    RETURN_IF_ERROR(TakeEnd("endfilter"));
    block.push_back({position, std::move(statement)});
    return absl::OkStatus();
  }

  absl::Status ParseWith(Position position, Block& block) {
    WithStatement statement;
    while (!NextIs(TokenKind::BLOCK_END)) {
      if (!statement.variables.empty()) RETURN_IF_ERROR(ExpectOperator(","));
      ASSIGN_OR_RETURN(const NameId name, ExpectNameId());
      RETURN_IF_ERROR(ExpectOperator("="));
      ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      statement.variables.emplace_back(name, std::move(value));
    }
    RETURN_IF_ERROR(ExpectBlockEnd());
    ASSIGN_OR_RETURN(statement.body, ParseBlock({"endwith"}));
    RETURN_IF_ERROR(TakeEnd("endwith"));
    block.push_back({position, std::move(statement)});
    return absl::OkStatus();
  }

  // {% generation %} marks what the model said, for training; here it is only a block of its own.
  absl::Status ParseGeneration(Position position, Block& block) {
    RETURN_IF_ERROR(ExpectBlockEnd());
    WithStatement statement;
    ASSIGN_OR_RETURN(statement.body, ParseBlock({"endgeneration"}));
    RETURN_IF_ERROR(TakeEnd("endgeneration"));
    block.push_back({position, std::move(statement)});
    return absl::OkStatus();
  }

  absl::Status ParseMacro(Position position, Block& block) {
    auto macro = std::make_unique<Macro>();
    ASSIGN_OR_RETURN(macro->name, ExpectName());
    if (!NextIsOperator("(")) return Unexpected("'('");
    RETURN_IF_ERROR(ParseParameters(*macro));
    RETURN_IF_ERROR(ExpectBlockEnd());
    RETURN_IF_ERROR(ParseMacroBody("endmacro", *macro));
    const NameId name = Intern(macro->name);
    block.push_back({position, MacroStatement{name, std::move(macro)}});
    return absl::OkStatus();
  }

  absl::Status ParseParameters(Macro& macro) {
    RETURN_IF_ERROR(ExpectOperator("("));
    while (!TakeOperator(")")) {
      if (!macro.parameters.empty()) {
        RETURN_IF_ERROR(ExpectOperator(","));
        if (TakeOperator(")")) break;
      }
      MacroParameter parameter;
      ASSIGN_OR_RETURN(parameter.name, ExpectNameId());
      if (TakeOperator("=")) {
        ASSIGN_OR_RETURN(parameter.default_value, ParseExpression());
      } else if (!macro.parameters.empty() && macro.parameters.back().default_value != nullptr) {
        return SyntaxError(Next().position, "parameter without a default follows one with");
      }
      macro.parameters.push_back(std::move(parameter));
    }
    return absl::OkStatus();
  }

  absl::Status ParseMacroBody(absl::string_view end, Macro& macro) {
    const uint32_t loops = std::exchange(loops_, 0);
    const size_t begin = at_;
    ASSIGN_OR_RETURN(macro.body, ParseBlock({end}));
    for (size_t i = begin; i < at_; ++i) {
      if (tokens_[i].kind != TokenKind::NAME) continue;
      macro.takes_positional |= tokens_[i].text == "varargs";
      macro.takes_named |= tokens_[i].text == "kwargs";
      macro.takes_caller |= tokens_[i].text == "caller";
    }
    loops_ = loops;
    return TakeEnd(end);
  }

  absl::Status ParseCallBlock(Position position, Block& block) {
    auto caller = std::make_unique<Macro>();
    caller->name = "caller";
    if (NextIsOperator("(")) RETURN_IF_ERROR(ParseParameters(*caller));
    CallStatement statement;
    ASSIGN_OR_RETURN(statement.call, ParseExpression());
    if (!std::holds_alternative<CallNode>(statement.call->node)) {
      return SyntaxError(position, "'call' needs a call of a macro");
    }
    RETURN_IF_ERROR(ExpectBlockEnd());
    RETURN_IF_ERROR(ParseMacroBody("endcall", *caller));
    statement.caller = std::move(caller);
    block.push_back({position, std::move(statement)});
    return absl::OkStatus();
  }

  // --- Expressions.

  using Rule = absl::StatusOr<ExpressionPtr> (Parser::*)();

  // `a`, or the tuple `a, b`.
  absl::StatusOr<ExpressionPtr> ParseTuple() { return ParseTupleOf(&Parser::ParseExpression); }

  absl::StatusOr<ExpressionPtr> ParseTupleOf(Rule rule) {
    const Position position = Next().position;
    ASSIGN_OR_RETURN(ExpressionPtr first, (this->*rule)());
    if (!NextIsOperator(",")) return first;
    SequenceNode tuple = {{}, true};
    tuple.items.push_back(std::move(first));
    while (TakeOperator(",")) {
      if (EndsTuple()) break;
      ASSIGN_OR_RETURN(ExpressionPtr item, (this->*rule)());
      tuple.items.push_back(std::move(item));
    }
    return Make(position, std::move(tuple));
  }

  bool EndsTuple() const {
    return NextIs(TokenKind::VARIABLE_END) || NextIs(TokenKind::BLOCK_END) || NextIsOperator(")") ||
           NextIsOperator("]");
  }

  absl::StatusOr<ExpressionPtr> ParseExpression() {
    const Level level(depth_);
    RETURN_IF_ERROR(CheckDepth());
    ASSIGN_OR_RETURN(ExpressionPtr value, ParseOr());
    for (uint32_t links = 1; NextIsWord("if"); ++links) {
      RETURN_IF_ERROR(CheckDepth(links));
      const Position position = Take().position;
      ConditionalNode conditional;
      conditional.then = std::move(value);
      ASSIGN_OR_RETURN(conditional.condition, ParseOr());
      if (TakeWord("else")) {
        ASSIGN_OR_RETURN(conditional.otherwise, ParseExpression());
      }
      value = Make(position, std::move(conditional));
    }
    return value;
  }

  absl::StatusOr<ExpressionPtr> ParseOr() { return ParseLogic("or", &Parser::ParseAnd); }
  absl::StatusOr<ExpressionPtr> ParseAnd() { return ParseLogic("and", &Parser::ParseNot); }

  absl::StatusOr<ExpressionPtr> ParseLogic(absl::string_view word, Rule operand_rule) {
    const Position position = Next().position;
    ASSIGN_OR_RETURN(ExpressionPtr first, (this->*operand_rule)());
    if (!NextIsWord(word)) return first;
    LogicNode logic = {word == "and", {}};
    logic.operands.push_back(std::move(first));
    while (TakeWord(word)) {
      ASSIGN_OR_RETURN(ExpressionPtr operand, (this->*operand_rule)());
      logic.operands.push_back(std::move(operand));
    }
    return Make(position, std::move(logic));
  }

  absl::StatusOr<ExpressionPtr> ParseNot() {
    if (!NextIsWord("not")) return ParseComparison();
    const Level level(depth_);
    RETURN_IF_ERROR(CheckDepth());
    const Position position = Take().position;
    ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
    return Make(position, UnaryNode{UnaryOperator::NOT, std::move(operand)});
  }

  absl::StatusOr<ExpressionPtr> ParseComparison() {
    const Position position = Next().position;
    ASSIGN_OR_RETURN(ExpressionPtr first, ParseSum());
    CompareNode comparison;
    while (auto op = TakeCompareOperator()) {
      ASSIGN_OR_RETURN(ExpressionPtr operand, ParseSum());
      comparison.steps.push_back({*op, std::move(operand)});
    }
    if (comparison.steps.empty()) return first;
    comparison.first = std::move(first);
    return Make(position, std::move(comparison));
  }

  std::optional<CompareOperator> TakeCompareOperator() {
    if (NextIsWord("not") && AfterNext().kind == TokenKind::NAME && AfterNext().text == "in") {
      at_ += 2;
      return CompareOperator::NOT_IN;
    }
    if (TakeWord("in")) return CompareOperator::IN;
    static constexpr std::pair<absl::string_view, CompareOperator> kOperators[] = {
        {"==", CompareOperator::EQUAL},      {"!=", CompareOperator::NOT_EQUAL},
        {"<=", CompareOperator::LESS_EQUAL}, {">=", CompareOperator::GREATER_EQUAL},
        {"<", CompareOperator::LESS},        {">", CompareOperator::GREATER}};
    for (const auto& [text, op] : kOperators) {
      if (TakeOperator(text)) return op;
    }
    return std::nullopt;
  }

  struct BinaryRule {
    absl::string_view text;
    BinaryOperator op;
  };
  absl::StatusOr<ExpressionPtr> ParseBinary(absl::Span<const BinaryRule> rules, Rule operand_rule) {
    const Position position = Next().position;
    ASSIGN_OR_RETURN(ExpressionPtr first, (this->*operand_rule)());
    BinaryNode binary;
    while (true) {
      const auto rule = std::find_if(rules.begin(), rules.end(), [&](const BinaryRule& candidate) {
        return NextIsOperator(candidate.text);
      });
      if (rule == rules.end()) break;
      Take();
      ASSIGN_OR_RETURN(ExpressionPtr operand, (this->*operand_rule)());
      binary.steps.push_back({rule->op, std::move(operand)});
    }
    if (binary.steps.empty()) return first;
    binary.first = std::move(first);
    return Make(position, std::move(binary));
  }

  absl::StatusOr<ExpressionPtr> ParseSum() {
    static constexpr BinaryRule kRules[] = {{"+", BinaryOperator::ADD},
                                            {"-", BinaryOperator::SUBTRACT}};
    return ParseBinary(kRules, &Parser::ParseConcatenation);
  }
  absl::StatusOr<ExpressionPtr> ParseConcatenation() {
    static constexpr BinaryRule kRules[] = {{"~", BinaryOperator::CONCATENATE}};
    return ParseBinary(kRules, &Parser::ParseProduct);
  }
  absl::StatusOr<ExpressionPtr> ParseProduct() {
    static constexpr BinaryRule kRules[] = {{"*", BinaryOperator::MULTIPLY},
                                            {"/", BinaryOperator::DIVIDE},
                                            {"//", BinaryOperator::FLOOR_DIVIDE},
                                            {"%", BinaryOperator::MODULO}};
    return ParseBinary(kRules, &Parser::ParsePower);
  }
  absl::StatusOr<ExpressionPtr> ParsePower() {
    static constexpr BinaryRule kRules[] = {{"**", BinaryOperator::POWER}};
    return ParseBinary(kRules, &Parser::ParseUnary);
  }

  absl::StatusOr<ExpressionPtr> ParseUnary() { return ParseSigned(true); }

  // A sign binds tighter than a filter: -1|abs is (-1)|abs.
  absl::StatusOr<ExpressionPtr> ParseSigned(bool with_filters) {
    const Position position = Next().position;
    ExpressionPtr value;
    if (NextIsOperator("-") || NextIsOperator("+")) {
      const Level level(depth_);
      RETURN_IF_ERROR(CheckDepth());
      const UnaryOperator op = Take().text == "-" ? UnaryOperator::NEGATE : UnaryOperator::PLUS;
      ASSIGN_OR_RETURN(ExpressionPtr operand, ParseSigned(false));
      value = Make(position, UnaryNode{op, std::move(operand)});
    } else {
      ASSIGN_OR_RETURN(value, ParsePrimary());
    }
    uint32_t links = 0;
    ASSIGN_OR_RETURN(value, ParsePostfix(std::move(value), links));
    return with_filters ? ParseFiltersAndTests(std::move(value), links) : std::move(value);
  }

  // .name [key] (arguments)
  absl::StatusOr<ExpressionPtr> ParsePostfix(ExpressionPtr value, uint32_t& links) {
    while (true) {
      const Position position = Next().position;
      if (NextIsOperator("(")) {
        ASSIGN_OR_RETURN(value, ParseCall(std::move(value)));
      } else if (TakeOperator(".")) {
        if (NextIs(TokenKind::INTEGER)) {
          ASSIGN_OR_RETURN(ExpressionPtr key, ParsePrimary());
          value = Make(position, SubscriptNode{std::move(value), std::move(key)});
        } else {
          ASSIGN_OR_RETURN(std::string name, ExpectName());
          value = Make(position, AttributeNode{std::move(value), std::move(name)});
        }
      } else if (TakeOperator("[")) {
        ASSIGN_OR_RETURN(value, ParseSubscript(position, std::move(value)));
      } else {
        return value;
      }
      RETURN_IF_ERROR(CheckDepth(++links));
    }
  }

  absl::StatusOr<ExpressionPtr> ParseSubscript(Position position, ExpressionPtr object) {
    ExpressionPtr parts[3];
    size_t part = 0;
    bool is_slice = false;
    while (!NextIsOperator("]")) {
      if (TakeOperator(":")) {
        is_slice = true;
        if (++part == 3) return Unexpected("']'");
      } else if (parts[part] == nullptr) {
        ASSIGN_OR_RETURN(parts[part], part == 0 ? ParseTuple() : ParseExpression());
      } else {
        return Unexpected("']'");
      }
    }
    RETURN_IF_ERROR(ExpectOperator("]"));
    if (is_slice) {
      return Make(position, SliceNode{std::move(object), std::move(parts[0]), std::move(parts[1]),
                                      std::move(parts[2])});
    }
    if (parts[0] == nullptr) return SyntaxError(position, "empty subscript");
    return Make(position, SubscriptNode{std::move(object), std::move(parts[0])});
  }

  absl::StatusOr<ExpressionPtr> ParseCall(ExpressionPtr callee) {
    const Position position = Next().position;
    CallNode call;
    ASSIGN_OR_RETURN(call.arguments, ParseArguments());
    call.callee = std::move(callee);
    return Make(position, std::move(call));
  }

  absl::StatusOr<ArgumentNodes> ParseArguments() {
    ArgumentNodes arguments;
    RETURN_IF_ERROR(ExpectOperator("("));
    bool first = true;
    while (!TakeOperator(")")) {
      if (!std::exchange(first, false)) {
        RETURN_IF_ERROR(ExpectOperator(","));
        if (TakeOperator(")")) break;
      }
      if (NextIsOperator("*") || NextIsOperator("**")) {
        return SyntaxError(Next().position, "* and ** in arguments are not supported");
      }
      if (NextIs(TokenKind::NAME) && AfterNext().kind == TokenKind::OPERATOR &&
          AfterNext().text == "=") {
        std::string name = Take().text;
        Take();
        ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
        arguments.named.emplace_back(std::move(name), std::move(value));
      } else if (arguments.named.empty()) {
        ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
        arguments.positional.push_back(std::move(value));
      } else {
        return SyntaxError(Next().position, "argument without a name follows one with");
      }
    }
    return arguments;
  }

  absl::StatusOr<ExpressionPtr> ParseFiltersAndTests(ExpressionPtr value, uint32_t links) {
    while (true) {
      const Position position = Next().position;
      if (TakeOperator("|")) {
        ASSIGN_OR_RETURN(FilterStep step, ParseFilterStep());
        value = Make(position, FilterNode{std::move(value), std::move(step)});
      } else if (TakeWord("is")) {
        ASSIGN_OR_RETURN(value, ParseTest(position, std::move(value)));
      } else if (NextIsOperator("(")) {
        ASSIGN_OR_RETURN(value, ParseCall(std::move(value)));
      } else {
        return value;
      }
      RETURN_IF_ERROR(CheckDepth(++links));
    }
  }

  absl::StatusOr<FilterStep> ParseFilterStep() {
    FilterStep step;
    step.position = Next().position;
    ASSIGN_OR_RETURN(const std::string name, ExpectName());
    step.spec = FindFilter(name);
    if (step.spec == nullptr) {
      return SyntaxError(step.position, absl::StrCat("filter '", name, "' is not known; known are ",
                                                     FilterNames()));
    }
    if (NextIsOperator("(")) {
      ASSIGN_OR_RETURN(step.arguments, ParseArguments());
    }
    return step;
  }

  // a(x)|b|c
  absl::StatusOr<std::vector<FilterStep>> ParseFilterSteps() {
    std::vector<FilterStep> steps;
    do {
      ASSIGN_OR_RETURN(FilterStep step, ParseFilterStep());
      steps.push_back(std::move(step));
    } while (TakeOperator("|"));
    return steps;
  }

  absl::StatusOr<ExpressionPtr> ParseTest(Position position, ExpressionPtr input) {
    const bool negated = TakeWord("not");
    const Position name_position = Next().position;
    ASSIGN_OR_RETURN(const std::string name, ExpectName());
    TestNode test;
    test.spec = FindTest(name);
    if (test.spec == nullptr) {
      return SyntaxError(name_position,
                         absl::StrCat("test '", name, "' is not known; known are ", TestNames()));
    }
    test.input = std::move(input);
    if (NextIsOperator("(")) {
      ASSIGN_OR_RETURN(test.arguments, ParseArguments());
    } else if (BeginsTestArgument()) {
      if (NextIsWord("is")) return Unexpected("no second test");
      ASSIGN_OR_RETURN(ExpressionPtr argument, ParsePrimary());
      uint32_t links = 0;
      ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument), links));
      test.arguments.positional.push_back(std::move(argument));
    }
    ExpressionPtr result = Make(position, std::move(test));
    if (!negated) return result;
    return Make(position, UnaryNode{UnaryOperator::NOT, std::move(result)});
  }

  bool BeginsTestArgument() const {
    switch (Next().kind) {
      case TokenKind::NAME:
        return !EndsTest(Next());
      case TokenKind::STRING:
      case TokenKind::INTEGER:
      case TokenKind::FLOAT:
        return true;
      default:
        return NextIsOperator("[") || NextIsOperator("{");
    }
  }

  absl::StatusOr<ExpressionPtr> ParsePrimary() {
    const Token token = Take();
    switch (token.kind) {
      case TokenKind::NAME:
        return ParseName(token);
      case TokenKind::STRING: {
        std::string text = token.text;
        while (NextIs(TokenKind::STRING)) text += Take().text;
        return Make(token.position, ConstantNode{ConstantText(std::move(text))});
      }
      case TokenKind::INTEGER:
        return ParseInteger(token);
      case TokenKind::FLOAT:
        return Make(token.position, ConstantNode{std::strtod(token.text.c_str(), nullptr)});
      case TokenKind::OPERATOR:
        if (token.text == "(") return ParseParentheses(token.position);
        if (token.text == "[") return ParseList(token.position);
        if (token.text == "{") return ParseDict(token.position);
        break;
      default:
        break;
    }
    return SyntaxError(token.position,
                       absl::StrCat("expected an expression, found ", Describe(token)));
  }

  absl::StatusOr<ExpressionPtr> ParseName(const Token& token) {
    const std::string& name = token.text;
    if (name == "true" || name == "True") return Make(token.position, ConstantNode{true});
    if (name == "false" || name == "False") return Make(token.position, ConstantNode{false});
    if (name == "none" || name == "None") return Make(token.position, ConstantNode{None{}});
    return Make(token.position, NameNode{Intern(name)});
  }

  absl::StatusOr<ExpressionPtr> ParseInteger(const Token& token) {
    int64_t value = 0;
    const char* end = token.text.data() + token.text.size();
    const auto read = std::from_chars(token.text.data(), end, value);
    if (read.ec != std::errc() || read.ptr != end) {
      return SyntaxError(token.position,
                         absl::StrCat("integer ", token.text, " is beyond 2^63 - 1"));
    }
    return Make(token.position, ConstantNode{value});
  }

  // After "(": an expression, or a tuple.
  absl::StatusOr<ExpressionPtr> ParseParentheses(Position position) {
    if (TakeOperator(")")) return Make(position, SequenceNode{{}, true});
    ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple());
    RETURN_IF_ERROR(ExpectOperator(")"));
    return value;
  }

  absl::StatusOr<ExpressionPtr> ParseList(Position position) {
    SequenceNode list = {{}, false};
    while (!TakeOperator("]")) {
      if (!list.items.empty()) {
        RETURN_IF_ERROR(ExpectOperator(","));
        if (TakeOperator("]")) break;
      }
      ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
      list.items.push_back(std::move(item));
    }
    return Make(position, std::move(list));
  }

  absl::StatusOr<ExpressionPtr> ParseDict(Position position) {
    DictNode dict;
    while (!TakeOperator("}")) {
      if (!dict.entries.empty()) {
        RETURN_IF_ERROR(ExpectOperator(","));
        if (TakeOperator("}")) break;
      }
      ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
      RETURN_IF_ERROR(ExpectOperator(":"));
      ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      dict.entries.emplace_back(std::move(key), std::move(value));
    }
    return Make(position, std::move(dict));
  }

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  uint32_t depth_ = 0;  // Of blocks and expressions.
  uint32_t loops_ = 0;  // Around the statement, within its macro.
  absl::flat_hash_map<std::string, NameId> names_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const Template>> Parse(absl::string_view source) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace baton::model::jinja
