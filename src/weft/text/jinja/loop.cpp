// What a template can ask of a loop.
#include "weft/text/jinja/loop.h"

#include "weft/text/jinja/macro.h"

namespace weft::jinja {

std::optional<Value> Loop::attribute(std::string_view name) {
  const int64_t index = int64_t(index_), length = int64_t(items_.size());
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return length - index;
  if (name == "revindex0") return length - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == length;
  if (name == "length") return length;
  if (name == "depth") return 1;  // counts recursive loops, which there are none of
  if (name == "depth0") return 0;
  if (name == "previtem") return item_or_undefined(index_ - 1, name);
  if (name == "nextitem") return item_or_undefined(index_ + 1, name);
  if (name == "cycle") {
    return make_function("loop.cycle", [self = shared_from_this()](Runtime&, const Arguments& arguments) {
      if (arguments.positional.empty()) throw TemplateError("loop.cycle needs values to cycle through");
      return arguments.positional[self->index_ % arguments.positional.size()];
    });
  }
  if (name == "changed") {
    return make_function("loop.changed", [self = shared_from_this()](Runtime& runtime, const Arguments& arguments) {
      return Value(self->has_changed(runtime, arguments));
    });
  }
  return {};
}

Value Loop::item_or_undefined(size_t index, std::string_view name) const {
  if (index < items_.size()) return items_[index];  // size_t(-1) is not
  return Value::undefined(fmt::format("there is no loop.{} here", name));
}

bool Loop::has_changed(Runtime& runtime, const Arguments& arguments) {
  const auto same = [&](const Value& a, const Value& b) { return equal(runtime, a, b); };
  const bool is_same =
      std::exchange(has_seen_, true) &&
      std::equal(seen_.begin(), seen_.end(), arguments.positional.begin(), arguments.positional.end(), same);
  if (!is_same) seen_ = arguments.positional;
  return !is_same;
}

}  // namespace weft::jinja
