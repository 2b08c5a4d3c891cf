// Toml: a recipe as typed keys; knows which were asked for, so that a misspelt one is an error and not a silence.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace weft {

// Keys are dotted: "train.steps". Every mistake is a UsageError that names the file and line, the key, the value and
// what to write instead.
//
//   Toml recipe = Toml::load("tiny.toml");
//   recipe.apply("--train.steps=500");
//   const auto steps = recipe.integer("train.steps", 1000, 1);
//   const auto lr = recipe.get<double>("optimizer.lr", 1e-3);
//   const auto data = recipe.require<std::string>("data.train");
//   recipe.reject_unknown();  // "tiny.toml:3: train.step is not a key; did you mean train.steps?"
class Toml {
 public:
  Toml() = default;  // an empty recipe
  static Toml load(const std::string& path);
  static Toml parse(std::string_view text, std::string source);

  // "--train.steps=500", "train.steps=500" too. The value is read as TOML when it is TOML, else as a string.
  void apply(std::string_view override_text);
  void apply(std::span<const std::string> overrides) {
    for (const std::string& text : overrides) apply(text);
  }

  using Scalar = std::variant<bool, int64_t, double, std::string>;
  using Value = std::variant<bool, int64_t, double, std::string, std::vector<Scalar>>;
  // The same with a typed value, as if it stood in the file.
  void put(std::string_view key, Value value);

  bool has(std::string_view key) const;              // does not count as asking for it
  bool has_section(std::string_view section) const;  // some key below it is there
  const std::string& source() const { return source_; }

  // T: bool (not of require), int64_t, int, double, std::string, std::vector<int64_t>, std::vector<double>,
  // std::vector<std::string>. An integer is a valid double; nothing else is converted. A default becomes part of the
  // resolved recipe.
  template <class T>
  T get(std::string_view key, T otherwise);
  template <class T>
  T require(std::string_view key);
  template <class T>
  std::optional<T> find(std::string_view key);

  int64_t integer(std::string_view key, int64_t otherwise, int64_t min, int64_t max = INT64_MAX);
  double number(std::string_view key, double otherwise, double min, double max);
  std::string choice(std::string_view key, std::string otherwise, std::span<const std::string_view> choices);
  std::string choice(std::string_view key, std::string otherwise, std::initializer_list<std::string_view> choices) {
    return choice(key, std::move(otherwise), std::span(choices.begin(), choices.size()));
  }

  // Says that `key` is valid though this run has no use for it.
  void allow(std::string_view key);
  void reject_unknown() const;

  // Every key that was asked for or allowed, in order, each once.
  const std::vector<std::string>& keys() const { return asked_; }

  // For a value that is well-typed but impossible: "tiny.toml:3: mesh.tp = 3: it must divide ...". Never returns.
  // why: a sentence of its own, which says what to write.
  [[noreturn]] void reject(std::string_view key, std::string_view why) const;

  // The recipe as resolved: what was given, and the defaults that were asked for, in the order of asking.
  std::string to_text() const;

 private:
  struct Entry {
    Value value;
    int line = 0;          // 0: not from a file
    std::string override;  // as written on the command line; without it the value is from the file
    bool is_default = false;
  };
  const Entry* ask(std::string_view key);
  template <class T>
  T convert(std::string_view key, const Entry& entry) const;
  std::string as_given(std::string_view key) const;                             // "tiny.toml:3: mesh.tp = 3"
  [[noreturn]] void demand(std::string_view key, std::string_view what) const;  // "... must be at least 1"
  void set(const std::string& key, Entry entry);
  std::string where(const Entry& entry) const;
  std::vector<std::string> unknown() const;
  template <class Table>
  void flatten(const Table& table, const std::string& prefix, int depth);

  std::string source_ = "recipe";
  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, int, std::less<>> empty_sections_;  // name to line
  std::vector<std::string> asked_;                          // in order, each once
};

template <>
int Toml::get<int>(std::string_view key, int otherwise);
template <>
int Toml::require<int>(std::string_view key);
template <>
std::optional<int> Toml::find<int>(std::string_view key);

}  // namespace weft
