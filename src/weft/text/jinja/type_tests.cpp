// What `is` asks of a value.
#include "weft/text/jinja/library.h"
#include "weft/text/jinja/python_text.h"

namespace weft::jinja {
namespace {

// Tests of one value, without arguments.
template <bool holds(const Value&)>
bool simple(Runtime&, const Value& input, const Arguments& arguments) {
  const Bound bound("a test that takes nothing", arguments, {});
  return holds(input);
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return value.is_boolean(); }
bool is_true(const Value& value) { return value.is_boolean() && value.truthy(); }
bool is_false(const Value& value) { return value.is_boolean() && !value.truthy(); }
bool is_integer(const Value& value) { return value.is_integer(); }
bool is_float(const Value& value) { return value.is_float(); }
bool is_number(const Value& value) { return value.is_number(); }
bool is_string(const Value& value) { return value.is_text(); }
bool is_mapping(const Value& value) { return value.is_dict(); }
bool is_sequence(const Value& value) { return !value.is_none() && !value.is_number() && !value.is_object(); }
bool is_callable(const Value& value) { return value.is_object() && value.object().is_callable(); }
bool is_odd(const Value& value) { return value.integer() % 2 != 0; }
bool is_even(const Value& value) { return value.integer() % 2 == 0; }
bool is_lower(const Value& value) {
  return value.is_text() && lower_case(value.text()) == value.text() && upper_case(value.text()) != value.text();
}
bool is_upper(const Value& value) {
  return value.is_text() && upper_case(value.text()) == value.text() && lower_case(value.text()) != value.text();
}
bool never(const Value&) { return false; }

const Value& other(const Arguments& arguments, std::string_view name) {
  return *Bound(name, arguments, {"other"}, 1)[0];
}

bool is_equal(Runtime& runtime, const Value& a, const Arguments& b) { return equal(runtime, a, other(b, "equalto")); }
bool is_not_equal(Runtime& runtime, const Value& a, const Arguments& b) { return !equal(runtime, a, other(b, "ne")); }
bool is_less(Runtime& runtime, const Value& a, const Arguments& b) { return compare(runtime, a, other(b, "lt")) < 0; }
bool is_less_equal(Runtime& runtime, const Value& a, const Arguments& b) {
  return compare(runtime, a, other(b, "le")) <= 0;
}
bool is_greater(Runtime& runtime, const Value& a, const Arguments& b) {
  return compare(runtime, a, other(b, "gt")) > 0;
}
bool is_greater_equal(Runtime& runtime, const Value& a, const Arguments& b) {
  return compare(runtime, a, other(b, "ge")) >= 0;
}
bool is_in(Runtime& runtime, const Value& a, const Arguments& b) { return contains(runtime, other(b, "in"), a); }

// The same thing: for what weft's templates have, an equal value of the same type.
bool is_same(Runtime& runtime, const Value& a, const Arguments& b) {
  const Value& value = other(b, "sameas");
  return a.describe() == value.describe() && equal(runtime, a, value);
}

bool is_divisible(Runtime&, const Value& a, const Arguments& b) {
  const int64_t divisor = Bound("divisibleby", b, {"num"}, 1)[0]->integer();
  if (divisor == 0) throw TemplateError("divisibleby: an integer is divided by zero");
  return divisor == -1 || a.integer() % divisor == 0;
}

bool is_filter(Runtime&, const Value& a, const Arguments&) { return a.is_text() && find_filter(a.text()) != nullptr; }
bool is_test(Runtime&, const Value& a, const Arguments&) { return a.is_text() && find_test(a.text()) != nullptr; }

struct Row {
  std::string_view name;
  Test test;
};
constexpr Row kTests[] = {
    {"defined", simple<is_defined>},
    {"undefined", simple<is_undefined>},
    {"none", simple<is_none>},
    {"boolean", simple<is_boolean>},
    {"true", simple<is_true>},
    {"false", simple<is_false>},
    {"integer", simple<is_integer>},
    {"float", simple<is_float>},
    {"number", simple<is_number>},
    {"string", simple<is_string>},
    {"mapping", simple<is_mapping>},
    {"sequence", simple<is_sequence>},
    {"iterable", simple<is_sequence>},
    {"callable", simple<is_callable>},
    {"odd", simple<is_odd>},
    {"even", simple<is_even>},
    {"lower", simple<is_lower>},
    {"upper", simple<is_upper>},
    {"escaped", simple<never>},
    {"divisibleby", is_divisible},
    {"eq", is_equal},
    {"equalto", is_equal},
    {"ne", is_not_equal},
    {"lt", is_less},
    {"lessthan", is_less},
    {"le", is_less_equal},
    {"gt", is_greater},
    {"greaterthan", is_greater},
    {"ge", is_greater_equal},
    {"in", is_in},
    {"sameas", is_same},
    {"filter", is_filter},
    {"test", is_test},
    // select('==', 3) and its kind
    {"==", is_equal},
    {"!=", is_not_equal},
    {"<", is_less},
    {"<=", is_less_equal},
    {">", is_greater},
    {">=", is_greater_equal},
};

}  // namespace

Test find_test(std::string_view name) {
  for (const Row& row : kTests) {
    if (row.name == name) return row.test;
  }
  return nullptr;
}

std::vector<std::string> test_names() {
  std::vector<std::string> names;
  for (const Row& row : kTests) names.emplace_back(row.name);
  return names;
}

}  // namespace weft::jinja
