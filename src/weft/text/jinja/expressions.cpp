// How expressions compute their values.
#include "weft/text/jinja/expressions.h"

#include "weft/text/jinja/python_text.h"

namespace weft::jinja {
namespace {

constexpr int kMaxTreeDepth = 300;

bool holds(Runtime& runtime, CompareOperator op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOperator::equal: return equal(runtime, a, b);
    case CompareOperator::not_equal: return !equal(runtime, a, b);
    case CompareOperator::less: return compare(runtime, a, b) < 0;
    case CompareOperator::less_equal: return compare(runtime, a, b) <= 0;
    case CompareOperator::greater: return compare(runtime, a, b) > 0;
    case CompareOperator::greater_equal: return compare(runtime, a, b) >= 0;
    case CompareOperator::in: return contains(runtime, b, a);
    case CompareOperator::not_in: return !contains(runtime, b, a);
  }
  return false;
}

std::optional<int64_t> bound_of(Runtime& runtime, const ExpressionPtr& expression) {
  if (!expression) return {};
  const Value value = expression->evaluate(runtime);
  if (value.is_none()) return {};
  return value.integer();
}

}  // namespace

int deepest(std::initializer_list<const Expression*> parts) {
  int depth = 0;
  for (const Expression* part : parts) depth = std::max(depth, part ? part->depth() : 0);
  return depth;
}

int deepest(const std::vector<ExpressionPtr>& parts) {
  int depth = 0;
  for (const ExpressionPtr& part : parts) depth = std::max(depth, part->depth());
  return depth;
}

Expression::Expression(int line, int depth_of_parts) : line_(line), depth_(depth_of_parts + 1) {
  if (depth_ > kMaxTreeDepth) throw TemplateError("an expression is nested deeper than {} levels", kMaxTreeDepth);
}

Value Expression::evaluate(Runtime& runtime) const {
  const OneDeeper level(runtime, line_);
  runtime.charge(1);
  Value value = compute(runtime);
  if (value.is_text()) {
    runtime.require_text_size(value.text().size());
    runtime.charge(value.weight());
  }
  level.leave();
  return value;
}

int ArgumentExpressions::depth() const {
  int depth = std::max(deepest(positional), deepest({more_positional.get(), more_named.get()}));
  for (const auto& [name, value] : named) depth = std::max(depth, value->depth());
  return depth;
}

Arguments ArgumentExpressions::evaluate(Runtime& runtime) const {
  Arguments arguments;
  for (const ExpressionPtr& argument : positional) arguments.positional.push_back(argument->evaluate(runtime));
  for (const auto& [name, value] : named) arguments.named.emplace_back(name, value->evaluate(runtime));
  if (more_positional) {
    for (Value& value : elements_of(runtime, more_positional->evaluate(runtime))) {
      arguments.positional.push_back(std::move(value));
    }
  }
  if (more_named) {
    const Value values = more_named->evaluate(runtime);
    runtime.charge(values.dict().entries().size());
    for (const auto& [key, value] : values.dict().entries()) arguments.named.emplace_back(key.text(), value);
  }
  return arguments;
}

Value Name::compute(Runtime& runtime) const {
  runtime.charge(runtime.scope()->level() / 8);
  if (const Value* value = runtime.scope()->find(name_)) return *value;
  return Value::undefined(fmt::format("'{}' is undefined", name_));
}

Value ListExpression::compute(Runtime& runtime) const {
  std::vector<Value> items;
  for (const ExpressionPtr& item : items_) items.push_back(item->evaluate(runtime));
  return is_tuple_ ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

Value DictExpression::compute(Runtime& runtime) const {
  std::vector<std::pair<Value, Value>> entries;
  for (size_t i = 0; i < keys_.size(); ++i) {
    Value key = keys_[i]->evaluate(runtime);
    entries.emplace_back(std::move(key), values_[i]->evaluate(runtime));
  }
  return Value::dict(std::move(entries));
}

Value AttributeExpression::compute(Runtime& runtime) const { return attribute_of(value_->evaluate(runtime), name_); }

Value ItemExpression::compute(Runtime& runtime) const {
  const Value value = value_->evaluate(runtime);
  return item_of(value, key_->evaluate(runtime));
}

Value SliceExpression::compute(Runtime& runtime) const {
  const Value value = value_->evaluate(runtime);
  const auto begin = bound_of(runtime, begin_), end = bound_of(runtime, end_);
  const int64_t step = bound_of(runtime, step_).value_or(1);
  if (step == 0) throw TemplateError("the step of a slice must not be 0");
  runtime.charge(value.is_text() ? value.text().size() : value.items().size());
  if (value.is_text()) return slice_text(value.text(), begin, end, step);
  const Slice slice = slice_of(int64_t(value.items().size()), begin, end, step);
  std::vector<Value> items;
  for (int64_t i = 0; i < slice.count; ++i) items.push_back(value.items()[size_t(slice.first + i * slice.step)]);
  return value.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

Value CallExpression::call(Runtime& runtime, Arguments arguments) const {
  const Value callee = callee_->evaluate(runtime);
  callee.require_defined();
  if (!callee.is_object()) throw TemplateError("{} cannot be called", callee.describe());
  const std::shared_ptr<Object> object = callee.shared_object();
  return object->call(runtime, arguments);
}

Value CallExpression::compute(Runtime& runtime) const { return call(runtime, arguments_.evaluate(runtime)); }

Value CallExpression::call_with(Runtime& runtime, const Value& caller) const {
  Arguments arguments = arguments_.evaluate(runtime);
  arguments.named.emplace_back("caller", caller);
  return call(runtime, std::move(arguments));
}

Value FilterExpression::compute(Runtime& runtime) const {
  const Value input = input_->evaluate(runtime);
  return filter_(runtime, input, arguments_.evaluate(runtime));
}

Value TestExpression::compute(Runtime& runtime) const {
  const Value input = input_->evaluate(runtime);
  return test_(runtime, input, arguments_.evaluate(runtime));
}

Value Unary::compute(Runtime& runtime) const {
  const Value value = operand_->evaluate(runtime);
  if (op_ == UnaryOperator::logical_not) return !value.truthy();
  if (value.is_float()) return op_ == UnaryOperator::minus ? -value.number() : value.number();
  return op_ == UnaryOperator::minus ? arithmetic(runtime, BinaryOperator::subtract, int64_t(0), value.integer())
                                     : Value(value.integer());
}

Value Binary::compute(Runtime& runtime) const {
  Value left = left_->evaluate(runtime);
  if (op_ == BinaryOperator::logical_and) return left.truthy() ? right_->evaluate(runtime) : left;
  if (op_ == BinaryOperator::logical_or) return left.truthy() ? left : right_->evaluate(runtime);
  return arithmetic(runtime, op_, left, right_->evaluate(runtime));
}

Value Concatenation::compute(Runtime& runtime) const {
  std::string text;
  for (const ExpressionPtr& part : parts_) {
    const Value value = part->evaluate(runtime);
    text += text_of(runtime, value);
    runtime.require_text_size(text.size());
  }
  return text;
}

Value Comparison::compute(Runtime& runtime) const {
  Value left = operands_[0]->evaluate(runtime);
  for (size_t i = 0; i < operators_.size(); ++i) {
    Value right = operands_[i + 1]->evaluate(runtime);
    if (!holds(runtime, operators_[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Conditional::compute(Runtime& runtime) const {
  if (condition_->evaluate(runtime).truthy()) return then_->evaluate(runtime);
  if (otherwise_) return otherwise_->evaluate(runtime);
  return Value::undefined("the condition of an inline if is false, and it has no else");
}

}  // namespace weft::jinja
