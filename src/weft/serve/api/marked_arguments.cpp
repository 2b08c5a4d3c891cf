// Marked arguments: a recursive descent, of limited depth.
#include "weft/serve/api/marked_arguments.h"

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/serve/api/trimmed.h"

namespace weft::api {
namespace {

using nlohmann::ordered_json;

constexpr int kDeepestMember = 64;
constexpr std::string_view kMark = kTextMark, kEndsWord = ",:{}[]<";

class MarkedReader {
 public:
  explicit MarkedReader(std::string_view text) : text_(text) {}

  std::optional<ordered_json> whole() {
    skip_space();
    if (!rest().starts_with('{')) return {};
    std::optional<ordered_json> object = value();
    skip_space();
    return at_ == text_.size() ? std::move(object) : std::nullopt;
  }

 private:
  std::string_view rest() const { return text_.substr(at_); }
  void skip_space() { at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size()); }
  bool takes(std::string_view piece) {
    skip_space();
    if (!rest().starts_with(piece)) return false;
    at_ += piece.size();
    return true;
  }

  std::optional<ordered_json> value() {
    if (takes(kMark)) return text_to_mark();
    if (takes("{")) return inside([this](ordered_json& all) { return member(all); }, "}", ordered_json::object());
    if (takes("[")) return inside([this](ordered_json& all) { return item(all); }, "]", ordered_json::array());
    return word();
  }

  // Parts with commas between them, up to `close`.
  std::optional<ordered_json> inside(auto&& part, std::string_view close, ordered_json all) {
    if (++depth_ > kDeepestMember) return {};
    for (bool is_first = true; !takes(close); is_first = false)
      if ((!is_first && !takes(",")) || !part(all)) return {};
    --depth_;
    return all;
  }
  bool member(ordered_json& object) {
    skip_space();
    std::optional<std::string> name = takes(kMark) ? text_to_mark() : bare();
    if (!name || name->empty() || !takes(":")) return false;
    std::optional<ordered_json> one = value();
    if (one) object[std::move(*name)] = std::move(*one);
    return one.has_value();
  }
  bool item(ordered_json& list) {
    std::optional<ordered_json> one = value();
    if (one) list.push_back(std::move(*one));
    return one.has_value();
  }

  std::optional<std::string> text_to_mark() {
    const size_t end = text_.find(kMark, at_);
    if (end == std::string_view::npos) return {};
    std::string text(text_.substr(at_, end - at_));
    at_ = end + kMark.size();
    return text;
  }
  std::string bare() {
    const size_t end = std::min(text_.find_first_of(kEndsWord, at_), text_.size());
    const std::string_view word = trimmed(text_.substr(at_, end - at_));
    at_ = end;
    return std::string(word);
  }
  // A number, true, false or null.
  std::optional<ordered_json> word() {
    const std::string word = bare();
    try {
      ordered_json one = parse_ordered_json(word, "an argument", {.max_bytes = 64, .max_depth = 1, .max_values = 1});
      return one.is_string() ? std::nullopt : std::optional(std::move(one));
    } catch (const Error&) {
      return {};
    }
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

bool is_bare_name(std::string_view name) {
  return !name.empty() && name.find_first_of(kEndsWord) == std::string_view::npos &&
         name.find_first_of(" \t\r\n\f\v") == std::string_view::npos;
}

std::optional<std::string> json_of_marked_arguments(std::string_view text) {
  const std::optional<ordered_json> object = MarkedReader(text).whole();
  if (!object) return {};
  return object->dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace weft::api
