// ConfigEntry: values as numbers, flags and text.
#include "weft/plan/imports/config_entry.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "weft/base/error.h"
#include "weft/base/excerpt.h"

namespace weft::plan {
namespace {

template <class T>
std::optional<T> parsed(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

std::string shown_item(const Toml::Scalar& scalar) {
  struct {
    std::string operator()(bool x) const { return x ? "true" : "false"; }
    std::string operator()(int64_t x) const { return fmt::format("{}", x); }
    std::string operator()(double x) const { return fmt::format("{}", x); }
    std::string operator()(const std::string& x) const { return x; }
  } show;
  return std::visit(show, scalar);
}

}  // namespace

std::string key_below(const std::string& section, std::string_view name, const std::string& source) {
  constexpr size_t kLongest = 512;
  if (section.size() + name.size() > kLongest)
    throw UsageError("{}: the key '{}' is too long", source, excerpt(name));
  return section.empty() ? std::string(name) : fmt::format("{}.{}", section, name);
}

Toml::Scalar scalar_of(std::string_view text) {
  if (const auto integer = parsed<int64_t>(text)) return *integer;
  const bool begins_like_a_number = !text.empty() && (text.find_first_of("0123456789") <= 2);
  if (const auto number = parsed<double>(text); number && begins_like_a_number && std::isfinite(*number))
    return *number;
  return std::string(text);
}

std::optional<double> number_of(const ConfigEntry& entry) {
  if (!entry.value) return {};
  if (const auto* integer = std::get_if<int64_t>(&*entry.value)) return double(*integer);
  if (const auto* number = std::get_if<double>(&*entry.value)) return *number;
  if (const auto* text = std::get_if<std::string>(&*entry.value)) {
    const Toml::Scalar scalar = scalar_of(*text);
    if (const auto* integer = std::get_if<int64_t>(&scalar)) return double(*integer);
    if (const auto* number = std::get_if<double>(&scalar)) return *number;
  }
  return {};
}

std::optional<bool> flag_of(const ConfigEntry& entry) {
  if (!entry.value) return {};
  if (const auto* flag = std::get_if<bool>(&*entry.value)) return *flag;
  if (entry.text == "true" || entry.text == "True") return true;
  if (entry.text == "false" || entry.text == "False") return false;
  return {};
}

std::optional<std::string> text_of(const ConfigEntry& entry) {
  if (!entry.value || std::holds_alternative<std::vector<Toml::Scalar>>(*entry.value)) return {};
  return entry.text;
}

std::string shown(const Toml::Value& value) {
  if (const auto* items = std::get_if<std::vector<Toml::Scalar>>(&value)) {
    std::string text;
    for (const Toml::Scalar& item : *items) text += (text.empty() ? "" : ", ") + shown_item(item);
    return "[" + text + "]";
  }
  return std::visit(
      [](const auto& x) -> std::string {
        if constexpr (std::is_constructible_v<Toml::Scalar, decltype(x)>)
          return shown_item(Toml::Scalar(x));
        else
          return {};
      },
      value);
}

}  // namespace weft::plan
