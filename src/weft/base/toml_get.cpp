// Typed getters, unknown keys, and the resolved recipe as text.
#include <cmath>

#include "weft/base/error.h"
#include "weft/base/nearest.h"
#include "weft/base/toml.h"

namespace weft {
namespace {

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (uint8_t(c) < 0x20 || c == 0x7f) {
      fmt::format_to(std::back_inserter(out), "\\u{:04X}", int(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string to_toml(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);  // the shortest that reads back the same
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}
std::string to_toml(bool value) { return value ? "true" : "false"; }
std::string to_toml(int64_t value) { return fmt::format("{}", value); }
std::string to_toml(const std::string& value) { return in_quotes(value); }

std::string to_toml(const Toml::Scalar& value) {
  return std::visit([](const auto& x) { return to_toml(x); }, value);
}
std::string to_toml(const std::vector<Toml::Scalar>& values) {
  std::string out;
  for (const Toml::Scalar& value : values) out += (out.empty() ? "" : ", ") + to_toml(value);
  return "[" + out + "]";
}
std::string to_toml(const Toml::Value& value) {
  return std::visit([](const auto& x) { return to_toml(x); }, value);
}

template <class T>
struct Kind;
template <>
struct Kind<bool> {
  static constexpr std::string_view name = "true or false";
};
template <>
struct Kind<int64_t> {
  static constexpr std::string_view name = "an integer";
};
template <>
struct Kind<double> {
  static constexpr std::string_view name = "a number";
};
template <>
struct Kind<std::string> {
  static constexpr std::string_view name = "a string, in double quotes";
};
template <>
struct Kind<std::vector<int64_t>> {
  static constexpr std::string_view name = "an array of integers, as [1, 2]";
};
template <>
struct Kind<std::vector<double>> {
  static constexpr std::string_view name = "an array of numbers, as [0.9, 0.95]";
};
template <>
struct Kind<std::vector<std::string>> {
  static constexpr std::string_view name = "an array of strings, as [\"a\", \"b\"]";
};

template <class T, class Variant>
std::optional<T> scalar_as(const Variant& value) {
  if (const T* x = std::get_if<T>(&value)) return *x;
  if constexpr (std::is_same_v<T, double>) {
    if (const int64_t* x = std::get_if<int64_t>(&value)) return double(*x);
  }
  return {};
}

template <class T>
std::optional<T> value_as(const Toml::Value& value) {
  if constexpr (requires { typename T::allocator_type; } && !std::is_same_v<T, std::string>) {
    const auto* items = std::get_if<std::vector<Toml::Scalar>>(&value);
    if (!items) return {};
    T result;
    for (const Toml::Scalar& item : *items) {
      auto x = scalar_as<typename T::value_type>(item);
      if (!x) return {};
      result.push_back(std::move(*x));
    }
    return result;
  } else {
    return scalar_as<T>(value);
  }
}

Toml::Value to_value(bool x) { return x; }
Toml::Value to_value(int64_t x) { return x; }
Toml::Value to_value(double x) { return x; }
Toml::Value to_value(std::string x) { return x; }
template <class T>
Toml::Value to_value(const std::vector<T>& x) {
  return std::vector<Toml::Scalar>(x.begin(), x.end());
}

std::string section_of(std::string_view key) {
  const size_t dot = key.rfind('.');
  return std::string(dot == key.npos ? std::string_view() : key.substr(0, dot));
}

}  // namespace

const Toml::Entry* Toml::ask(std::string_view key) {
  if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) asked_.emplace_back(key);
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

template <class T>
T Toml::convert(std::string_view key, const Entry& entry) const {
  if (auto value = value_as<T>(entry.value)) return *value;
  if constexpr (std::is_same_v<T, std::string>) {
    if (!entry.override.empty()) return entry.override;  // --data.train=2024 names a file
  }
  throw UsageError("{}: {} = {} must be {}", where(entry), key, to_toml(entry.value), Kind<T>::name);
}

template <class T>
std::optional<T> Toml::find(std::string_view key) {
  const Entry* entry = ask(key);
  if (!entry) {
    const std::string prefix = fmt::format("{}.", key);
    const auto below = entries_.lower_bound(prefix);
    if (below != entries_.end() && below->first.starts_with(prefix)) {
      throw UsageError("{}: {} must be {}, but it is a section with the key {}", where(below->second), key,
                       Kind<T>::name, below->first);
    }
    return {};
  }
  return convert<T>(key, *entry);
}

template <class T>
T Toml::get(std::string_view key, T otherwise) {
  if (auto value = find<T>(key)) return *value;
  entries_[std::string(key)] = {.value = to_value(otherwise), .is_default = true};
  return otherwise;
}

template <class T>
T Toml::require(std::string_view key) {
  if (auto value = find<T>(key)) return *value;
  throw UsageError("{}: {} is missing, it must be {}{}", source_, key, Kind<T>::name, did_you_mean(key, unknown()));
}

template <>
std::optional<int> Toml::find<int>(std::string_view key) {
  const auto value = find<int64_t>(key);
  if (!value) return {};
  if (*value < INT32_MIN || *value > INT32_MAX) demand(key, fmt::format("from {} to {}", INT32_MIN, INT32_MAX));
  return int(*value);
}
template <>
int Toml::get<int>(std::string_view key, int otherwise) {
  if (auto value = find<int>(key)) return *value;
  return int(get<int64_t>(key, otherwise));
}
template <>
int Toml::require<int>(std::string_view key) {
  const int64_t unused = require<int64_t>(key);
  (void)unused;
  return *find<int>(key);
}

int64_t Toml::integer(std::string_view key, int64_t otherwise, int64_t min, int64_t max) {
  const auto value = get<int64_t>(key, otherwise);
  if (value >= min && value <= max) return value;
  demand(key, max == INT64_MAX ? fmt::format("at least {}", min) : fmt::format("from {} to {}", min, max));
}

double Toml::number(std::string_view key, double otherwise, double min, double max) {
  const auto value = get<double>(key, otherwise);
  if (value >= min && value <= max) return value;  // not true of a NaN
  demand(key, fmt::format("from {} to {}", min, max));
}

std::string Toml::choice(std::string_view key, std::string otherwise, std::span<const std::string_view> choices) {
  auto value = get<std::string>(key, std::move(otherwise));
  std::vector<std::string> names(choices.begin(), choices.end());
  if (std::find(names.begin(), names.end(), value) != names.end()) return value;
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + in_quotes(name);
  demand(key, fmt::format("one of {}{}", list, did_you_mean(value, names)));
}

void Toml::allow(std::string_view key) { ask(key); }

std::string Toml::as_given(std::string_view key) const {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return fmt::format("{}: {}", source_, key);
  return fmt::format("{}: {} = {}", where(found->second), key, to_toml(found->second.value));
}

void Toml::reject(std::string_view key, std::string_view why) const {
  throw UsageError("{}: {}", as_given(key), why);
}

void Toml::demand(std::string_view key, std::string_view what) const {
  throw UsageError("{} must be {}", as_given(key), what);
}

std::vector<std::string> Toml::unknown() const {
  std::vector<std::string> keys;
  for (const auto& [key, entry] : entries_) {
    if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) keys.push_back(key);
  }
  return keys;
}

void Toml::reject_unknown() const {
  std::vector<std::string> problems, sections;
  for (const std::string& key : asked_) {
    if (const std::string section = section_of(key); !section.empty()) sections.push_back(section);
  }
  for (const auto& [section, line] : empty_sections_) {
    const bool known = std::any_of(sections.begin(), sections.end(), [&, &name = section](const std::string& other) {
      return other == name || other.starts_with(name + ".");
    });
    if (!known) {
      problems.push_back(
          fmt::format("{}:{}: [{}] is not a section{}", source_, line, section, did_you_mean(section, sections)));
    }
  }
  for (const std::string& key : unknown()) {
    std::string hint = did_you_mean(key, asked_);
    if (hint.empty()) {
      std::vector<std::string> siblings;
      for (const std::string& other : asked_) {
        if (section_of(other) == section_of(key)) siblings.push_back(other);
      }
      for (const std::string& sibling : siblings) hint += (hint.empty() ? "; the keys are " : ", ") + sibling;
      if (hint.empty()) hint = did_you_mean(section_of(key), sections);
    }
    const Entry& entry = entries_.find(key)->second;
    problems.push_back(fmt::format("{}: {} is not a key{}", where(entry), key, hint));
  }
  if (problems.empty()) return;
  std::string text;
  for (const std::string& problem : problems) text += (text.empty() ? "" : "\n") + problem;
  throw UsageError(std::move(text));
}

std::string Toml::to_text() const {
  std::vector<std::string> keys = asked_;
  for (const std::string& key : unknown()) keys.push_back(key);
  std::vector<std::string> sections{""};  // keys without a section must come first
  for (const std::string& key : keys) {
    if (std::find(sections.begin(), sections.end(), section_of(key)) == sections.end()) {
      sections.push_back(section_of(key));
    }
  }
  std::string text;
  for (const std::string& section : sections) {
    std::string lines;
    for (const std::string& key : keys) {
      const auto entry = entries_.find(key);
      if (entry == entries_.end() || section_of(key) != section) continue;
      const std::string name = section.empty() ? key : key.substr(section.size() + 1);
      lines += fmt::format("{} = {}\n", name, to_toml(entry->second.value));
    }
    if (lines.empty()) continue;
    if (!text.empty()) text += '\n';
    if (!section.empty()) text += fmt::format("[{}]\n", section);
    text += lines;
  }
  return text;
}

template bool Toml::get<bool>(std::string_view, bool);
template int64_t Toml::get<int64_t>(std::string_view, int64_t);
template double Toml::get<double>(std::string_view, double);
template std::string Toml::get<std::string>(std::string_view, std::string);
template std::vector<int64_t> Toml::get<std::vector<int64_t>>(std::string_view, std::vector<int64_t>);
template std::vector<double> Toml::get<std::vector<double>>(std::string_view, std::vector<double>);
template std::vector<std::string> Toml::get<std::vector<std::string>>(std::string_view, std::vector<std::string>);
template int64_t Toml::require<int64_t>(std::string_view);
template double Toml::require<double>(std::string_view);
template std::string Toml::require<std::string>(std::string_view);
template std::vector<int64_t> Toml::require<std::vector<int64_t>>(std::string_view);
template std::vector<double> Toml::require<std::vector<double>>(std::string_view);
template std::vector<std::string> Toml::require<std::vector<std::string>>(std::string_view);
template std::optional<bool> Toml::find<bool>(std::string_view);
template std::optional<int64_t> Toml::find<int64_t>(std::string_view);
template std::optional<double> Toml::find<double>(std::string_view);
template std::optional<std::string> Toml::find<std::string>(std::string_view);
template std::optional<std::vector<int64_t>> Toml::find<std::vector<int64_t>>(std::string_view);
template std::optional<std::vector<double>> Toml::find<std::vector<double>>(std::string_view);
template std::optional<std::vector<std::string>> Toml::find<std::vector<std::string>>(std::string_view);

}  // namespace weft
