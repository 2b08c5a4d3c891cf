// The limited reader: nlohmann-json's iterative event parser, with a builder that counts and checks.
#include "weft/base/json.h"

#include <nlohmann/json.hpp>

#include <unordered_set>

#include "weft/base/error.h"

namespace weft {
namespace {

using Json = nlohmann::json;
using Visit = FunctionRef<void(const std::string& key, const Json& value)>;

// Builds a value from parser events. With `visit`, members of the outermost object are handed over and dropped.
template <class Json>
class Builder final : public nlohmann::json_sax<Json> {
 public:
  using Visit = FunctionRef<void(const std::string& key, const Json& value)>;
  static constexpr bool kIsSorted = std::is_same_v<Json, nlohmann::json>;
  using typename nlohmann::json_sax<Json>::number_integer_t;
  using typename nlohmann::json_sax<Json>::number_unsigned_t;
  using typename nlohmann::json_sax<Json>::number_float_t;
  using typename nlohmann::json_sax<Json>::string_t;
  using typename nlohmann::json_sax<Json>::binary_t;
  Builder(const JsonLimits& limits, const Visit* visit) : limits_(limits), visit_(visit) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return refuse("binary data"); }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    const bool is_new = remembers_keys() ? seen_.back().insert(name).second : !stack_.back()->contains(name);
    key_ = std::move(name);
    return is_new || refuse(fmt::format("the key '{}' appears twice in one object", clipped(key_)));
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    std::string_view text = e.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: reason"
    if (const size_t bracket = text.find("] "); bracket != text.npos) text.remove_prefix(bracket + 2);
    if (text.starts_with("parse error")) {
      if (const size_t colon = text.find(": "); colon != text.npos) text.remove_prefix(colon + 2);
    }
    position_ = position;
    return refuse(clipped(text));
  }

  Json take() { return std::move(root_); }
  const std::string& problem() const { return problem_; }
  std::optional<size_t> position() const { return position_; }  // of a syntax error: one past the offending byte

 private:
  static std::string clipped(std::string_view text) {
    constexpr size_t kLongest = 160;
    return text.size() <= kLongest ? std::string(text) : std::string(text.substr(0, kLongest)) + "...";
  }
  bool refuse(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  bool streams_here() const { return visit_ && stack_.size() == 1; }
  bool remembers_keys() const { return !kIsSorted || streams_here(); }

  // The place in the tree where `value` now is, or null when a limit is passed.
  Json* place(Json&& value) {
    if (++count_ > limits_.max_values) {
      refuse(fmt::format("it holds more than {} values", limits_.max_values));
      return nullptr;
    }
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (streams_here()) {
      member_ = std::move(value);
      return &member_;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) return &parent.template get_ref<typename Json::array_t&>().emplace_back(std::move(value));
    auto& object = parent.template get_ref<typename Json::object_t&>();
    if constexpr (kIsSorted) {
      return &object.emplace(std::move(key_), std::move(value)).first->second;
    } else {
      return &object.emplace_back(std::move(key_), std::move(value)).second;  // emplace would look for the key
    }
  }
  bool put(Json&& value) {
    if (visit_ && stack_.empty()) return refuse("an object was expected");
    if (!place(std::move(value))) return false;
    if (streams_here()) (*visit_)(key_, member_);
    return true;
  }
  bool open(Json&& empty) {
    if (int(stack_.size()) >= limits_.max_depth) {
      return refuse(fmt::format("it is nested deeper than {} levels", limits_.max_depth));
    }
    if (visit_ && stack_.empty() && empty.is_array()) return refuse("an object was expected");
    if (streams_here()) member_key_ = key_;
    Json* at = place(std::move(empty));
    if (at) stack_.push_back(at);
    if (at && remembers_keys()) seen_.emplace_back();
    return at != nullptr;
  }
  bool close() {
    if (remembers_keys()) seen_.pop_back();
    stack_.pop_back();
    if (streams_here()) (*visit_)(member_key_, member_);
    return true;
  }

  const JsonLimits& limits_;
  const Visit* visit_;
  Json root_, member_;
  std::vector<Json*> stack_;  // the open arrays and objects; only the innermost grows, so the pointers stay valid
  std::string key_, member_key_, problem_;
  std::vector<std::unordered_set<std::string>> seen_;  // keys of those open ones that cannot look for theirs
  std::optional<size_t> position_;
  int64_t count_ = 0;
};

// Counts what the parser has read, so that a refusal by the builder has a place too.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  CountingIterator(const char* at, const char** latest) : at_(at), latest_(latest) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *latest_ = ++at_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  const char** latest_;
};

template <class Json>
void parse(std::string_view text, std::string_view source, const JsonLimits& limits, Builder<Json>& builder) {
  if (text.size() > limits.max_bytes) {
    throw Error("{}: {} bytes of JSON, more than the {} allowed here", source, text.size(), limits.max_bytes);
  }
  const char* latest = text.data();
  bool ok = false;
  try {
    ok = Json::sax_parse(CountingIterator(text.data(), &latest), CountingIterator(text.data() + text.size(), &latest),
                         &builder);
  } catch (const typename Json::exception& e) {
    throw Error("{}: {}", source, e.what());
  }
  if (ok) return;
  const size_t read = std::min(builder.position().value_or(size_t(latest - text.data())), text.size());
  const std::string_view before = text.substr(0, read ? read - 1 : 0);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t column = before.size() - (before.rfind('\n') + 1) + 1;  // npos + 1 == 0
  throw Error("{}, line {} column {}: {}", source, line, column, builder.problem());
}

}  // namespace

Json parse_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  Builder<Json> builder(limits, nullptr);
  parse(text, source, limits, builder);
  return builder.take();
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  Builder<nlohmann::ordered_json> builder(limits, nullptr);
  parse(text, source, limits, builder);
  return builder.take();
}

void for_each_json_member(std::string_view text, std::string_view source, const JsonLimits& limits, Visit visit) {
  Builder<Json> builder(limits, &visit);
  parse(text, source, limits, builder);
}

std::string to_json_text(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace weft
