// HfFields: the keys of a Hugging Face config.json; one description of them both reads and writes.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/base/json.h"

namespace weft {

// Reading checks types and ranges and throws Error naming the file, the key and what weft can read instead. A key
// that is absent or null has the default that Hugging Face's library gives it. Writing writes every key.
class HfFields {
 public:
  explicit HfFields(const JsonView& from) : from_(&from) {}  // which outlives this
  explicit HfFields(JsonView&&) = delete;
  explicit HfFields(nlohmann::json& to) : to_(&to) {}
  bool is_reading() const { return from_ != nullptr; }
  bool has(const char* key) const { return from_ && from_->has(key); }
  bool is_null(const char* key) const;  // there, where an absent key means something else
  // The key that a value was read from, below those of objects that it stands in; null where it is from none.
  const char* key_of(const void* value) const;
  // An object inside was read by fields of its own.
  void add_keys_of(const HfFields& inner);

  void size(const char* key, int64_t& value);  // must be there
  void size(const char* key, int64_t& value, int64_t otherwise);
  void number(const char* key, float& value, double otherwise);
  void number(const char* key, double& value, double otherwise);
  void numbers(const char* key, std::vector<double>& values);  // must be there
  void flag(const char* key, bool& value, bool otherwise);
  // A key for which weft knows one value only.
  void only(const char* key, bool value);
  void only(const char* key, int64_t value);
  void only(const char* key, std::string_view value);
  void only(const char* key, const char* value) { only(key, std::string_view(value)); }  // which is no bool
  void only_null(const char* key);

  template <class T>
  using Names = std::vector<std::pair<std::string_view, T>>;
  // Several names may stand for a value; the first is written.
  template <class T>
  void choice(const char* key, T& value, const Names<T>& names, std::string_view otherwise) {
    if (is_reading()) {
      const std::string text = text_or(key, otherwise);
      for (const auto& [name, meaning] : names)
        if (name == text) {
          note(key, &value), value = meaning;
          return;
        }
      std::vector<std::string_view> known;
      for (const auto& entry : names) known.push_back(entry.first);
      refuse(key, text, known);
    }
    for (const auto& [name, meaning] : names)
      if (meaning == value) return write(key, name);
    cannot_write(key);
  }

  // "config.json: KEY = VALUE is not supported; WHAT"
  [[noreturn]] void refuse(const char* key, std::string_view what) const;
  const JsonView& from() const { return *from_; }
  nlohmann::json& to() const { return *to_; }

 private:
  std::string text_or(const char* key, std::string_view otherwise) const;
  [[noreturn]] void refuse(const char* key, const std::string& value,
                           const std::vector<std::string_view>& known) const;
  [[noreturn]] static void cannot_write(const char* key);
  void write(const char* key, std::string_view value);
  std::string path_of(const char* key) const { return (*from_)[key].path(); }
  void note(const char* key, const void* value) { places_.emplace_back(value, path_of(key)); }

  const JsonView* from_ = nullptr;
  nlohmann::json* to_ = nullptr;
  std::vector<std::pair<const void*, std::string>> places_;  // of what was read
};

}  // namespace weft
