// Reading TOML by toml++, flattened to dotted keys; overrides.
#include "weft/base/toml.h"

#include <toml++/toml.h>

#include "weft/base/error.h"
#include "weft/base/file.h"

namespace weft {
namespace {

constexpr uint64_t kMaxRecipeBytes = 1 << 20;
constexpr int kMaxDepth = 8;  // of sections

Toml::Scalar scalar_of(const toml::node& node, std::string_view key, std::string_view where) {
  if (const auto* x = node.as_boolean()) return x->get();
  if (const auto* x = node.as_integer()) return x->get();
  if (const auto* x = node.as_floating_point()) return x->get();
  if (const auto* x = node.as_string()) return x->get();
  throw UsageError(
      "{}: {} holds a date, a time, a table or an array of arrays; write numbers, strings, true or false", where,
      key);
}

Toml::Value value_of(const toml::node& node, std::string_view key, std::string_view where) {
  if (const auto* array = node.as_array()) {
    std::vector<Toml::Scalar> items;
    for (const toml::node& item : *array) items.push_back(scalar_of(item, key, where));
    return items;
  }
  return std::visit([](auto&& x) -> Toml::Value { return x; }, scalar_of(node, key, where));
}

toml::table parse_table(std::string_view text, std::string_view source) {
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& e) {
    throw UsageError("{}:{}:{}: {}", source, e.source().begin.line, e.source().begin.column, e.description());
  }
}

// `text` as one TOML value, if it is one.
std::optional<Toml::Value> parse_value(std::string_view text, std::string_view key, std::string_view where) {
  if (text.find_first_of("\r\n") != text.npos) return {};
  toml::table table;
  try {
    table = toml::parse(fmt::format("value = {}", text));
  } catch (const toml::parse_error&) {
    return {};
  }
  const toml::node* node = table.get("value");
  const bool is_date = node && (node->is_date() || node->is_time() || node->is_date_time());
  if (!node || is_date || text.find('#') != text.npos) return {};
  return value_of(*node, key, where);
}

bool is_key(std::string_view key) {
  if (key.empty() || key.front() == '.' || key.back() == '.' || key.find("..") != key.npos) return false;
  return std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  });
}

}  // namespace

Toml Toml::load(const std::string& path) {
  std::string text;
  try {
    text = read_file(path, kMaxRecipeBytes);
  } catch (const FileError& e) {
    throw UsageError("{}", e.what());
  }
  return parse(text, path);
}

Toml Toml::parse(std::string_view text, std::string source) {
  Toml result;
  result.source_ = std::move(source);
  result.flatten(parse_table(text, result.source_), "", 0);
  return result;
}

template <class Table>
void Toml::flatten(const Table& table, const std::string& prefix, int depth) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix.empty() ? std::string(name.str()) : fmt::format("{}.{}", prefix, name.str());
    const int line = int(node.source().begin.line);
    const std::string place = fmt::format("{}:{}", source_, line);
    if (!is_key(name.str()) || name.str().find('.') != std::string_view::npos) {
      throw UsageError("{}: '{}' is not a key; keys are letters, digits, '_' and '-'", place, key);
    }
    if (const toml::table* inner = node.as_table()) {
      if (depth >= kMaxDepth) throw UsageError("{}: {} is nested deeper than {} sections", place, key, kMaxDepth);
      if (inner->empty()) empty_sections_[key] = line;
      flatten(*inner, key, depth + 1);
    } else {
      set(key, {.value = value_of(node, key, place), .line = line});
    }
  }
}

void Toml::set(const std::string& key, Entry entry) {
  for (const auto& [other, unused] : entries_) {
    const bool inside = other.starts_with(key + "."), around = key.starts_with(other + ".");
    if (inside) throw UsageError("{}: {} is a section; write one of its keys, as {}=...", where(entry), key, other);
    if (around) throw UsageError("{}: {} is a value and not a section, so {} cannot be", where(entry), other, key);
  }
  entries_[key] = std::move(entry);
}

void Toml::apply(std::string_view override_text) {
  std::string_view text = override_text;
  while (text.starts_with('-')) text.remove_prefix(1);
  const size_t equals = text.find('=');
  const std::string key(text.substr(0, equals));
  if (equals == text.npos || !is_key(key)) {
    throw UsageError("'{}' is not an override; write --section.key=value, as --train.steps=100", override_text);
  }
  const std::string_view raw = text.substr(equals + 1);
  Entry entry{.value = std::string(raw), .override = std::string(raw)};
  if (auto value = parse_value(raw, key, override_text)) entry.value = std::move(*value);
  if (entry.override.empty()) entry.override = "\"\"";
  set(key, std::move(entry));
}

void Toml::put(std::string_view key, Value value) {
  if (!is_key(key)) throw UsageError("'{}' is not a key; keys are letters, digits, '_', '-' and dots", key);
  set(std::string(key), {.value = std::move(value)});
}

bool Toml::has(std::string_view key) const {
  const auto found = entries_.find(key);
  return found != entries_.end() && !found->second.is_default;
}

bool Toml::has_section(std::string_view section) const {
  const std::string prefix = fmt::format("{}.", section);
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const auto& item) { return item.first.starts_with(prefix) && !item.second.is_default; });
}

std::string Toml::where(const Entry& entry) const {
  if (!entry.override.empty()) return "command line";
  return entry.line ? fmt::format("{}:{}", source_, entry.line) : source_;
}

}  // namespace weft
