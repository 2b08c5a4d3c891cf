// The functions that every template can call.
#include "weft/base/excerpt.h"
#include "weft/text/jinja/macro.h"

namespace weft::jinja {
namespace {

Value range(Runtime& runtime, const Arguments& arguments) {
  const auto& given = arguments.positional;
  if (!arguments.named.empty() || given.empty() || given.size() > 3) {
    throw TemplateError("range takes one to three integers: range(end), range(begin, end, step)");
  }
  const int64_t begin = given.size() > 1 ? given[0].integer() : 0, end = given[given.size() > 1].integer();
  const int64_t step = given.size() > 2 ? given[2].integer() : 1;
  if (step == 0) throw TemplateError("the step of a range must not be 0");
  std::vector<Value> values;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (int64_t(values.size()) >= runtime.limits().max_range) {
      throw TemplateError("a range has more than {} elements", runtime.limits().max_range);
    }
    values.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  runtime.charge(values.size());
  return Value::list(std::move(values));
}

// dict(a=1), dict({'a': 1}, b=2), dict([('a', 1)])
Value make_dict(Runtime& runtime, const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> entries;
  if (arguments.positional.size() > 1) throw TemplateError("dict takes one argument without a name at most");
  for (const Value& given : arguments.positional) {
    if (given.is_dict()) {
      entries = given.dict().entries();
      continue;
    }
    for (const Value& pair : elements_of(runtime, given)) {
      if (pair.items().size() != 2) throw TemplateError("dict: pairs were expected");
      entries.emplace_back(pair.items()[0], pair.items()[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) entries.emplace_back(name, value);
  runtime.charge(entries.size());
  return Value::dict(std::move(entries));
}

Value make_namespace(Runtime& runtime, const Arguments& arguments) {
  const auto space = runtime.make_namespace();
  const Value values = make_dict(runtime, arguments);
  for (const auto& [key, value] : values.dict().entries()) space->set_attribute(key.text(), value);
  return std::shared_ptr<Object>(space);
}

Value raise_exception(Runtime& runtime, const Arguments& arguments) {
  const Bound bound("raise_exception", arguments, {"message"}, 1);
  throw TemplateError("the template refuses this: {}", excerpt(bound.text(runtime, 0, ""), 1000));
}

Value format_now(Runtime& runtime, const Arguments& arguments) {
  const Bound bound("strftime_now", arguments, {"format"}, 1);
  const std::time_t now = runtime.now();
  std::tm local{};
  localtime_r(&now, &local);
  constexpr size_t kMaxBytes = 1024;
  char text[kMaxBytes];
  const std::string format = bound[0]->text() + '|';  // so that nothing to write is no failure
  const size_t size = std::strftime(text, sizeof text, format.c_str(), &local);
  if (size == 0) throw TemplateError("strftime_now: the date has more than {} bytes", kMaxBytes);
  return std::string(text, size - 1);
}

}  // namespace

void define_globals(Scope& scope) {
  const std::pair<std::string_view, Value (*)(Runtime&, const Arguments&)> functions[] = {
      {"range", range},
      {"dict", make_dict},
      {"namespace", make_namespace},
      {"raise_exception", raise_exception},
      {"strftime_now", format_now},
  };
  for (const auto& [name, function] : functions) scope.set(name, make_function(std::string(name), function));
}

}  // namespace weft::jinja
