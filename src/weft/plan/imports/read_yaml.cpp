// A YAML configuration as flat entries, by libyaml's events.
#include <fmt/format.h>
#include <yaml.h>

#include <algorithm>
#include <set>

#include "weft/base/error.h"
#include "weft/base/excerpt.h"
#include "weft/plan/imports/config_entry.h"

namespace weft::plan {
namespace {

// The events of one text, one at a time.
class Events {
 public:
  // Once the other constructor is done, the destructor runs even if this one throws.
  Events(std::string_view text, const std::string& source) : Events(source) {
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
    next();
  }
  ~Events() {
    yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  yaml_event_type_t type() const { return event_.type; }
  int line() const { return int(event_.start_mark.line) + 1; }
  std::string_view scalar() const {
    return {reinterpret_cast<const char*>(event_.data.scalar.value), event_.data.scalar.length};
  }
  bool is_plain() const { return event_.data.scalar.style == YAML_PLAIN_SCALAR_STYLE; }

  void next() {
    yaml_event_delete(&event_);
    event_ = {};
    if (!yaml_parser_parse(&parser_, &event_)) {
      throw UsageError("{}, line {} column {}: {}", source_, parser_.problem_mark.line + 1,
                       parser_.problem_mark.column + 1,
                       parser_.problem ? excerpt(parser_.problem) : "this is not YAML");
    }
    refuse_references();
  }
  [[noreturn]] void fail(std::string_view what) const { throw UsageError("{}, line {}: {}", source_, line(), what); }

 private:
  explicit Events(const std::string& source) : source_(source) {
    if (!yaml_parser_initialize(&parser_)) throw Error("{}: no memory for a YAML parser", source);
  }
  // A text that refers to its own parts can mean far more than it holds.
  void refuse_references() const {
    const bool has_anchor = (type() == YAML_SCALAR_EVENT && event_.data.scalar.anchor) ||
                            (type() == YAML_MAPPING_START_EVENT && event_.data.mapping_start.anchor) ||
                            (type() == YAML_SEQUENCE_START_EVENT && event_.data.sequence_start.anchor);
    if (type() == YAML_ALIAS_EVENT || has_anchor)
      fail("anchors and aliases (&name, *name) are not read: write the value where it is used");
    const bool has_tag = (type() == YAML_SCALAR_EVENT && event_.data.scalar.tag) ||
                         (type() == YAML_MAPPING_START_EVENT && event_.data.mapping_start.tag) ||
                         (type() == YAML_SEQUENCE_START_EVENT && event_.data.sequence_start.tag);
    if (has_tag) fail("tags (!name) are not read: write the plain value");
  }

  std::string source_;
  yaml_parser_t parser_{};
  yaml_event_t event_{};
};

// What YAML 1.1 makes of a plain scalar, as PyYAML reads it.
std::optional<Toml::Value> plain_value(std::string_view text) {
  constexpr std::string_view kNull[] = {"", "~", "null", "Null", "NULL"};
  constexpr std::string_view kTrue[] = {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"};
  constexpr std::string_view kFalse[] = {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"};
  if (std::ranges::find(kNull, text) != std::end(kNull)) return {};
  if (std::ranges::find(kTrue, text) != std::end(kTrue)) return true;
  if (std::ranges::find(kFalse, text) != std::end(kFalse)) return false;
  return std::visit([](const auto& x) -> Toml::Value { return x; }, scalar_of(text));
}

class YamlReader {
 public:
  YamlReader(std::string_view text, const std::string& source) : source_(source), events_(text, source) {}

  Config read() {
    expect(YAML_STREAM_START_EVENT), expect(YAML_DOCUMENT_START_EVENT);
    if (events_.type() != YAML_MAPPING_START_EVENT) events_.fail("write keys and values, as in dp: 8");
    node("", 0);
    expect(YAML_DOCUMENT_END_EVENT);
    if (events_.type() != YAML_STREAM_END_EVENT) events_.fail("a second document begins here: keep one of them");
    return std::move(config_);
  }

 private:
  void expect(yaml_event_type_t type) {
    if (events_.type() != type) events_.fail("a document with keys and values is expected");
    events_.next();
  }
  void add(ConfigEntry entry) {
    if (int64_t(config_.size()) >= kMostConfigValues) events_.fail("there are too many keys for a configuration");
    config_.push_back(std::move(entry));
  }

  void node(const std::string& key, int depth) {
    if (depth > kMostConfigDepth) events_.fail(fmt::format("it is nested deeper than {} levels", kMostConfigDepth));
    const int line = events_.line();
    if (events_.type() == YAML_SCALAR_EVENT) {
      add(scalar(key));
      events_.next();
    } else if (events_.type() == YAML_MAPPING_START_EVENT) {
      events_.next();
      mapping(key, line, depth);
    } else {
      events_.next();
      list(key, line, depth);
    }
  }

  ConfigEntry scalar(const std::string& key) const {
    ConfigEntry entry{.key = key,
                      .value = std::string(events_.scalar()),
                      .text = std::string(events_.scalar()),
                      .line = events_.line()};
    if (events_.is_plain()) entry.value = plain_value(events_.scalar());
    if (!entry.value) entry.text = "null";
    return entry;
  }

  void mapping(const std::string& key, int line, int depth) {
    if (events_.type() == YAML_MAPPING_END_EVENT)
      add({.key = key.empty() ? "{}" : key, .value = {}, .text = "{}", .line = line});
    std::set<std::string, std::less<>> seen;
    while (events_.type() != YAML_MAPPING_END_EVENT) {
      if (events_.type() != YAML_SCALAR_EVENT) events_.fail("a key must be a word");
      const std::string name(events_.scalar());
      if (name == "<<") events_.fail("merged sections (<<) are not read: write their keys here");
      if (!seen.insert(name).second) events_.fail(fmt::format("the key '{}' appears twice", excerpt(name)));
      events_.next();
      node(key_below(key, name, source_), depth + 1);
    }
    events_.next();
  }

  // Scalars become one entry; of sections and lists each has its own.
  void list(const std::string& key, int line, int depth) {
    const size_t first = config_.size();
    bool is_flat = true;
    for (int i = 0; events_.type() != YAML_SEQUENCE_END_EVENT; ++i) {
      is_flat &= events_.type() == YAML_SCALAR_EVENT;
      node(fmt::format("{}.{}", key, i), depth + 1);
    }
    events_.next();
    is_flat = is_flat && std::all_of(config_.begin() + ptrdiff_t(first), config_.end(),
                                     [](const ConfigEntry& e) { return e.value.has_value(); });
    if (!is_flat) return;
    std::vector<Toml::Scalar> items;
    for (size_t i = first; i < config_.size(); ++i) items.push_back(as_scalar(*config_[i].value));
    config_.resize(first);
    ConfigEntry entry{.key = key, .value = std::move(items), .text = {}, .line = line};
    entry.text = shown(*entry.value);
    add(std::move(entry));
  }

  static Toml::Scalar as_scalar(const Toml::Value& value) {
    return std::visit(
        [](const auto& x) -> Toml::Scalar {
          if constexpr (std::is_constructible_v<Toml::Scalar, decltype(x)>)
            return x;
          else
            return std::string();
        },
        value);
  }

  std::string source_;
  Events events_;
  Config config_;
};

}  // namespace

Config read_yaml_config(std::string_view text, const std::string& source) {
  if (text.size() > kMostConfigBytes) throw UsageError("{}: it is larger than {} bytes", source, kMostConfigBytes);
  return YamlReader(text, source).read();
}

}  // namespace weft::plan
