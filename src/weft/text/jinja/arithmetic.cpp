// What operators compute: Python's arithmetic on numbers, text and lists, refusing what 64 bits cannot hold.
#include <cmath>

#include "weft/text/jinja/expressions.h"

namespace weft::jinja {
namespace {

[[noreturn]] void refuse_overflow() { throw TemplateError("an integer becomes larger than 64 bits hold"); }

int64_t floor_quotient(int64_t a, int64_t b) {
  if (b == 0) throw TemplateError("an integer is divided by zero");
  if (a == INT64_MIN && b == -1) refuse_overflow();
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) refuse_overflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) refuse_overflow();
  }
  return result;
}

Value integer_arithmetic(BinaryOperator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  switch (op) {
    case BinaryOperator::add: overflows = __builtin_add_overflow(a, b, &result); break;
    case BinaryOperator::subtract: overflows = __builtin_sub_overflow(a, b, &result); break;
    case BinaryOperator::multiply: overflows = __builtin_mul_overflow(a, b, &result); break;
    case BinaryOperator::floor_divide: return floor_quotient(a, b);
    case BinaryOperator::modulo: return b == -1 ? 0 : a - floor_quotient(a, b) * b;
    case BinaryOperator::power: return b < 0 ? Value(std::pow(double(a), double(b))) : Value(integer_power(a, b));
    default:
      if (b == 0) throw TemplateError("a number is divided by zero");
      return double(a) / double(b);
  }
  if (overflows) refuse_overflow();
  return result;
}

Value float_arithmetic(BinaryOperator op, double a, double b) {
  switch (op) {
    case BinaryOperator::add: return a + b;
    case BinaryOperator::subtract: return a - b;
    case BinaryOperator::multiply: return a * b;
    case BinaryOperator::power: return std::pow(a, b);
    default: break;
  }
  if (b == 0) throw TemplateError("a number is divided by zero");
  if (op == BinaryOperator::divide) return a / b;
  const double remainder = std::fmod(a, b);
  const bool is_off = remainder != 0 && (remainder < 0) != (b < 0);  // Python's has the sign of b
  if (op == BinaryOperator::modulo) return is_off ? remainder + b : remainder;
  return std::floor(a / b);
}

Value repeated(Runtime& runtime, const Value& value, int64_t count) {
  const uint64_t times = count < 0 ? 0 : uint64_t(count);
  if (value.is_text()) {
    const std::string& text = value.text();
    if (!text.empty() && times > runtime.limits().max_text_bytes) runtime.require_text_size(times);
    runtime.require_text_size(times * text.size());
    std::string result;
    for (uint64_t i = 0; i < times && !text.empty(); ++i) result += text;
    return result;
  }
  std::vector<Value> items;
  for (uint64_t i = 0; i < times && !value.items().empty(); ++i) {
    runtime.charge(value.items().size());
    items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return value.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**", "and", "or"};

bool can_be_joined(const Value& a, const Value& b) {
  return (a.is_text() && b.is_text()) || (a.is_list() && b.is_list() && a.is_tuple() == b.is_tuple());
}

Value joined(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is_text()) {
    runtime.require_text_size(a.text().size() + b.text().size());
    return a.text() + b.text();
  }
  runtime.charge(a.items().size() + b.items().size());
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

}  // namespace

Value arithmetic(Runtime& runtime, BinaryOperator op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    return a.is_float() || b.is_float() ? float_arithmetic(op, a.number(), b.number())
                                        : integer_arithmetic(op, a.integer(), b.integer());
  }
  const auto is_sequence = [](const Value& value) { return value.is_text() || value.is_list(); };
  if (op == BinaryOperator::add && can_be_joined(a, b)) return joined(runtime, a, b);
  if (op == BinaryOperator::multiply && is_sequence(a) && b.is_number()) return repeated(runtime, a, b.integer());
  if (op == BinaryOperator::multiply && is_sequence(b) && a.is_number()) return repeated(runtime, b, a.integer());
  if (op == BinaryOperator::modulo && a.is_text()) return format_percent(runtime, a.text(), b);
  a.require_defined();
  b.require_defined();
  throw TemplateError("{} {} {} cannot be computed", a.describe(), kSymbols[size_t(op)], b.describe());
}

}  // namespace weft::jinja
