// Expressions of templates as a tree: each node computes its value.
#pragma once
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "weft/text/jinja/library.h"

namespace weft::jinja {

class Expression {
 public:
  virtual ~Expression() = default;
  Value evaluate(Runtime& runtime) const;
  int line() const { return line_; }
  int depth() const { return depth_; }

 protected:
  // Throws TemplateError when the tree becomes too deep to walk.
  Expression(int line, int depth_of_parts);

 private:
  virtual Value compute(Runtime& runtime) const = 0;
  int line_, depth_;
};
using ExpressionPtr = std::unique_ptr<const Expression>;

int deepest(std::initializer_list<const Expression*> parts);  // null ones are allowed
int deepest(const std::vector<ExpressionPtr>& parts);

// f(1, *list, width=3, **dict)
struct ArgumentExpressions {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional, more_named;

  Arguments evaluate(Runtime& runtime) const;
  int depth() const;
};

class Constant final : public Expression {
 public:
  Constant(int line, Value value) : Expression(line, 0), value_(std::move(value)) {}
  const Value& value() const { return value_; }

 private:
  Value compute(Runtime&) const override { return value_; }
  Value value_;
};

class Name final : public Expression {
 public:
  Name(int line, std::string name) : Expression(line, 0), name_(std::move(name)) {}
  const std::string& name() const { return name_; }

 private:
  Value compute(Runtime& runtime) const override;
  std::string name_;
};

class ListExpression final : public Expression {
 public:
  ListExpression(int line, std::vector<ExpressionPtr> items, bool is_tuple)
      : Expression(line, deepest(items)), items_(std::move(items)), is_tuple_(is_tuple) {}
  const std::vector<ExpressionPtr>& items() const { return items_; }

 private:
  Value compute(Runtime& runtime) const override;
  std::vector<ExpressionPtr> items_;
  bool is_tuple_;
};

class DictExpression final : public Expression {
 public:
  DictExpression(int line, std::vector<ExpressionPtr> keys, std::vector<ExpressionPtr> values)
      : Expression(line, std::max(deepest(keys), deepest(values))),
        keys_(std::move(keys)),
        values_(std::move(values)) {}

 private:
  Value compute(Runtime& runtime) const override;
  std::vector<ExpressionPtr> keys_, values_;
};

// value.name
class AttributeExpression final : public Expression {
 public:
  AttributeExpression(int line, ExpressionPtr value, std::string name)
      : Expression(line, deepest({value.get()})), value_(std::move(value)), name_(std::move(name)) {}
  const Expression& value() const { return *value_; }
  const std::string& name() const { return name_; }

 private:
  Value compute(Runtime& runtime) const override;
  ExpressionPtr value_;
  std::string name_;
};

// value[key]
class ItemExpression final : public Expression {
 public:
  ItemExpression(int line, ExpressionPtr value, ExpressionPtr key)
      : Expression(line, deepest({value.get(), key.get()})), value_(std::move(value)), key_(std::move(key)) {}

 private:
  Value compute(Runtime& runtime) const override;
  ExpressionPtr value_, key_;
};

// value[begin:end:step], of which each may be null
class SliceExpression final : public Expression {
 public:
  SliceExpression(int line, ExpressionPtr value, ExpressionPtr begin, ExpressionPtr end, ExpressionPtr step)
      : Expression(line, deepest({value.get(), begin.get(), end.get(), step.get()})),
        value_(std::move(value)),
        begin_(std::move(begin)),
        end_(std::move(end)),
        step_(std::move(step)) {}

 private:
  Value compute(Runtime& runtime) const override;
  ExpressionPtr value_, begin_, end_, step_;
};

class CallExpression final : public Expression {
 public:
  CallExpression(int line, ExpressionPtr callee, ArgumentExpressions arguments)
      : Expression(line, std::max(callee->depth(), arguments.depth())),
        callee_(std::move(callee)),
        arguments_(std::move(arguments)) {}
  Value call_with(Runtime& runtime, const Value& caller) const;  // of a {% call %} block

 private:
  Value compute(Runtime& runtime) const override;
  Value call(Runtime& runtime, Arguments arguments) const;
  ExpressionPtr callee_;
  ArgumentExpressions arguments_;
};

class FilterExpression final : public Expression {
 public:
  FilterExpression(int line, ExpressionPtr input, Filter filter, ArgumentExpressions arguments)
      : Expression(line, std::max(deepest({input.get()}), arguments.depth())),
        input_(std::move(input)),
        filter_(filter),
        arguments_(std::move(arguments)) {}

 private:
  Value compute(Runtime& runtime) const override;
  ExpressionPtr input_;
  Filter filter_;
  ArgumentExpressions arguments_;
};

class TestExpression final : public Expression {
 public:
  TestExpression(int line, ExpressionPtr input, Test test, ArgumentExpressions arguments)
      : Expression(line, std::max(deepest({input.get()}), arguments.depth())),
        input_(std::move(input)),
        test_(test),
        arguments_(std::move(arguments)) {}

 private:
  Value compute(Runtime& runtime) const override;
  ExpressionPtr input_;
  Test test_;
  ArgumentExpressions arguments_;
};

enum class UnaryOperator { logical_not, minus, plus };
class Unary final : public Expression {
 public:
  Unary(int line, UnaryOperator op, ExpressionPtr operand)
      : Expression(line, deepest({operand.get()})), op_(op), operand_(std::move(operand)) {}

 private:
  Value compute(Runtime& runtime) const override;
  UnaryOperator op_;
  ExpressionPtr operand_;
};

enum class BinaryOperator { add, subtract, multiply, divide, floor_divide, modulo, power, logical_and, logical_or };
class Binary final : public Expression {
 public:
  Binary(int line, BinaryOperator op, ExpressionPtr left, ExpressionPtr right)
      : Expression(line, deepest({left.get(), right.get()})),
        op_(op),
        left_(std::move(left)),
        right_(std::move(right)) {}

 private:
  Value compute(Runtime& runtime) const override;
  BinaryOperator op_;
  ExpressionPtr left_, right_;
};

// a ~ b ~ c
class Concatenation final : public Expression {
 public:
  Concatenation(int line, std::vector<ExpressionPtr> parts)
      : Expression(line, deepest(parts)), parts_(std::move(parts)) {}

 private:
  Value compute(Runtime& runtime) const override;
  std::vector<ExpressionPtr> parts_;
};

enum class CompareOperator { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };
// a < b <= c: operand i is compared with operand i + 1.
class Comparison final : public Expression {
 public:
  Comparison(int line, std::vector<ExpressionPtr> operands, std::vector<CompareOperator> operators)
      : Expression(line, deepest(operands)), operands_(std::move(operands)), operators_(std::move(operators)) {}

 private:
  Value compute(Runtime& runtime) const override;
  std::vector<ExpressionPtr> operands_;
  std::vector<CompareOperator> operators_;
};

// then if condition else otherwise; `otherwise` may be null
class Conditional final : public Expression {
 public:
  Conditional(int line, ExpressionPtr condition, ExpressionPtr then, ExpressionPtr otherwise)
      : Expression(line, deepest({condition.get(), then.get(), otherwise.get()})),
        condition_(std::move(condition)),
        then_(std::move(then)),
        otherwise_(std::move(otherwise)) {}

 private:
  Value compute(Runtime& runtime) const override;
  ExpressionPtr condition_, then_, otherwise_;
};

// What an operator computes, other than `and` and `or`.
Value arithmetic(Runtime& runtime, BinaryOperator op, const Value& a, const Value& b);

}  // namespace weft::jinja
