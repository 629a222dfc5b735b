// A template's syntax tree. Immutable once parsed; names are numbers, so that a rendering looks
// them up fast.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "model/chat_template/position.h"
#include "model/chat_template/value.h"

namespace baton::model::jinja {

struct FilterSpec;  // filters.h
struct TestSpec;    // predicates.h

using NameId = uint32_t;  // Index into Template::names.
// Names that the interpreter itself sets; they come first in every template.
enum KnownName : NameId { LOOP_NAME, VARARGS_NAME, KWARGS_NAME, CALLER_NAME };
inline constexpr absl::string_view kKnownNames[] = {"loop", "varargs", "kwargs", "caller"};

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

enum class BinaryOperator {
  ADD,
  SUBTRACT,
  CONCATENATE,
  MULTIPLY,
  DIVIDE,
  FLOOR_DIVIDE,
  MODULO,
  POWER
};
enum class UnaryOperator { NEGATE, PLUS, NOT };
enum class CompareOperator {
  EQUAL,
  NOT_EQUAL,
  LESS,
  LESS_EQUAL,
  GREATER,
  GREATER_EQUAL,
  IN,
  NOT_IN
};

struct ArgumentNodes {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

struct ConstantNode {
  Value value;
};
struct NameNode {
  NameId name;
};
struct SequenceNode {
  std::vector<ExpressionPtr> items;
  bool is_tuple;
};
struct DictNode {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct AttributeNode {
  ExpressionPtr object;
  std::string name;
};
struct SubscriptNode {
  ExpressionPtr object, key;
};
struct SliceNode {
  ExpressionPtr object;
  ExpressionPtr start, stop, step;  // Null: left out.
};
struct CallNode {
  ExpressionPtr callee;
  ArgumentNodes arguments;
};
// One filter of a chain, without its input.
struct FilterStep {
  const FilterSpec* spec;
  ArgumentNodes arguments;
  Position position;
};
struct FilterNode {
  ExpressionPtr input;
  FilterStep step;
};
struct TestNode {
  ExpressionPtr input;
  const TestSpec* spec;
  ArgumentNodes arguments;
};
struct UnaryNode {
  UnaryOperator op;
  ExpressionPtr operand;
};
// `first op operand op operand …`, from the left; a list, because long sums must not make deep
// trees.
struct BinaryNode {
  struct Step {
    BinaryOperator op;
    ExpressionPtr operand;
  };
  ExpressionPtr first;
  std::vector<Step> steps;
};
// `a < b < c` holds when each neighbouring pair does.
struct CompareNode {
  struct Step {
    CompareOperator op;
    ExpressionPtr operand;
  };
  ExpressionPtr first;
  std::vector<Step> steps;
};
struct LogicNode {
  bool is_and;
  std::vector<ExpressionPtr> operands;  // At least two.
};
struct ConditionalNode {
  ExpressionPtr condition, then, otherwise;  // `otherwise` null: undefined.
};

struct Expression {
  Position position;
  std::variant<ConstantNode, NameNode, SequenceNode, DictNode, AttributeNode, SubscriptNode,
               SliceNode, CallNode, FilterNode, TestNode, UnaryNode, BinaryNode, CompareNode,
               LogicNode, ConditionalNode>
      node;
};

struct Statement;
using Block = std::vector<Statement>;

// `a`, or `a, b` to unpack into.
struct Target {
  std::vector<NameId> names;
  bool unpacks = false;
};

struct TextStatement {
  std::string text;
};
struct PrintStatement {
  ExpressionPtr value;
};
struct IfStatement {
  struct Branch {
    ExpressionPtr condition;
    Block body;
  };
  std::vector<Branch> branches;
  Block otherwise;
};
struct ForStatement {
  Target target;
  ExpressionPtr items;
  ExpressionPtr filter;  // Null: none.
  Block body, otherwise;
};
struct SetStatement {
  Target target;
  ExpressionPtr value;
};
struct SetAttributeStatement {
  NameId space;
  std::string attribute;
  ExpressionPtr value;
};
struct SetBlockStatement {
  NameId name;
  std::vector<FilterStep> filters;
  Block body;
};
struct FilterStatement {
  std::vector<FilterStep> filters;
  Block body;
};
struct WithStatement {
  std::vector<std::pair<NameId, ExpressionPtr>> variables;
  Block body;
};
struct MacroParameter {
  NameId name;
  ExpressionPtr default_value;  // Null: none.
};
struct Macro {
  std::string name;
  std::vector<MacroParameter> parameters;
  // Whether the body speaks of these variables; other macros refuse what would go there.
  bool takes_positional = false;  // varargs
  bool takes_named = false;       // kwargs
  bool takes_caller = false;      // caller
  Block body;
};
struct MacroStatement {
  NameId name;
  std::unique_ptr<const Macro> macro;
};
// {% call(parameters) macro(…) %}body{% endcall %}
struct CallStatement {
  ExpressionPtr call;  // A CallNode.
  std::unique_ptr<const Macro> caller;
};
struct BreakStatement {};
struct ContinueStatement {};

struct Statement {
  Position position;
  std::variant<TextStatement, PrintStatement, IfStatement, ForStatement, SetStatement,
               SetAttributeStatement, SetBlockStatement, FilterStatement, WithStatement,
               MacroStatement, CallStatement, BreakStatement, ContinueStatement>
      node;
};

struct Template {
  Block body;
  std::vector<std::string> names;  // Indexed by NameId.
};

}  // namespace baton::model::jinja
