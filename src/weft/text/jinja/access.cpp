// What is inside a value: attributes, elements, length; and how the arguments of a call are bound.
#include "weft/text/jinja/macro.h"
#include "weft/text/jinja/python_text.h"

namespace weft::jinja {
namespace {

// Costs a step for this many bytes or elements that are walked through.
constexpr uint64_t kPerStep = 16;

std::vector<Value> characters_of(std::string_view text) {
  std::vector<Value> characters;
  for_each_code_point(text, [&](char32_t, std::string_view bytes) { characters.emplace_back(bytes); });
  return characters;
}

Value element_at(const Value& value, int64_t index) {
  const int64_t length = length_of(value);
  const int64_t position = index < 0 ? index + length : index;
  if (position < 0 || position >= length) {
    return Value::undefined(fmt::format("{} of {} elements has no element {}", value.describe(), length, index));
  }
  if (value.is_list()) return value.items()[size_t(position)];
  return slice_text(value.text(), position, position + 1, 1);
}

}  // namespace

Bound::Bound(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names,
             size_t num_required)
    : values_(names.size(), nullptr) {
  if (arguments.positional.size() > names.size()) {
    throw TemplateError("{} takes {} arguments at most, not {}", function, names.size(), arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const size_t position = size_t(std::find(names.begin(), names.end(), name) - names.begin());
    if (position == names.size()) throw TemplateError("{} has no argument '{}'", function, name);
    if (values_[position]) throw TemplateError("{} gets the argument '{}' twice", function, name);
    values_[position] = &value;
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (!values_[i]) throw TemplateError("{} needs the argument '{}'", function, *(names.begin() + ptrdiff_t(i)));
  }
}

std::string Bound::text(Runtime& runtime, size_t i, std::string_view otherwise) const {
  return values_[i] ? text_of(runtime, *values_[i]) : std::string(otherwise);
}

std::optional<std::string_view> Bound::optional_text(size_t i) const {
  if (!values_[i] || values_[i]->is_none()) return {};
  return values_[i]->text();
}

std::vector<Value> elements_of(Runtime& runtime, const Value& value) {
  if (value.is_undefined()) return {};
  if (value.is_list()) {
    runtime.charge(1 + value.items().size() / kPerStep);
    return value.items();
  }
  if (value.is_text()) {
    runtime.charge(1 + value.text().size());
    return characters_of(value.text());
  }
  if (!value.is_dict()) throw TemplateError("{} has no elements to go through", value.describe());
  std::vector<Value> keys;
  runtime.charge(1 + value.dict().entries().size() / kPerStep);
  for (const auto& [key, item] : value.dict().entries()) keys.push_back(key);
  return keys;
}

Value attribute_of(const Value& value, std::string_view name) {
  value.require_defined();
  if (value.is_object()) {
    if (auto found = value.object().attribute(name)) return *std::move(found);
  } else if (const Filter method = find_method(value, name)) {
    return make_function(std::string(name), [value, method](Runtime& runtime, const Arguments& arguments) {
      return method(runtime, value, arguments);
    });
  }
  if (value.is_dict()) {
    if (const Value* item = value.dict().find(name)) return *item;
  }
  return Value::undefined(fmt::format("{} has no '{}'", value.describe(), name));
}

Value item_of(const Value& value, const Value& key) {
  value.require_defined();
  if (value.is_dict()) {
    if (const Value* item = value.dict().find(key)) return *item;
  }
  if ((value.is_list() || value.is_text()) && (key.is_integer() || key.is_boolean())) {
    return element_at(value, key.integer());
  }
  if (key.is_text()) return attribute_of(value, key.text());
  return Value::undefined(fmt::format("{} has no element {}", value.describe(), key.describe()));
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_undefined()) return false;
  if (container.is_text()) {
    runtime.charge(container.weight());
    return find_bytes(container.text(), item.text()) != std::string::npos;
  }
  if (container.is_dict()) return container.dict().find(item) != nullptr;
  if (!container.is_list()) throw TemplateError("{} cannot contain anything", container.describe());
  const auto& items = container.items();
  return std::any_of(items.begin(), items.end(), [&](const Value& one) { return equal(runtime, one, item); });
}

int64_t length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_text()) return length_of(std::string_view(value.text()));
  if (value.is_list()) return int64_t(value.items().size());
  if (value.is_dict()) return int64_t(value.dict().entries().size());
  throw TemplateError("{} has no length", value.describe());
}

std::string text_of(Runtime& runtime, const Value& value) {
  runtime.charge(value.weight());
  return to_text(value, runtime.limits().max_text_bytes);
}

bool equal(Runtime& runtime, const Value& a, const Value& b) {
  runtime.charge(std::min(a.weight(), b.weight()));
  return equal(a, b);
}

int compare(Runtime& runtime, const Value& a, const Value& b) {
  runtime.charge(std::min(a.weight(), b.weight()));
  return compare(a, b);
}

}  // namespace weft::jinja
