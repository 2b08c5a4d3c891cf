// JSON from files and requests: one reader with limits, and a view with typed getters that say what is wrong where.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/function_ref.h"

namespace weft {

struct JsonLimits {
  uint64_t max_bytes = uint64_t(64) << 20;
  int max_depth = 64;             // arrays and objects inside each other
  int64_t max_values = 16 << 20;  // of every kind, together
};

// Refuses what JSON forbids, and: text over the limits, an object with the same key twice, bytes that are not UTF-8,
// numbers no double can hold. Throws Error "SOURCE, line L column C: what" and nothing else. Callers that use the
// result include <nlohmann/json.hpp>; most need only JsonDocument.
nlohmann::json parse_json(std::string_view text, std::string_view source, const JsonLimits& limits = {});

// The same, with the keys of objects in the order of the text: for what is written again as it was.
nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view source,
                                          const JsonLimits& limits = {});

// For an outermost object too large to keep as a tree: `visit` gets each of its members once, in order.
void for_each_json_member(std::string_view text, std::string_view source, const JsonLimits& limits,
                          FunctionRef<void(const std::string& key, const nlohmann::json& value)> visit);

// Text that parse_json reads back; bytes that are not UTF-8 become U+FFFD. `indent` < 0: one line.
std::string to_json_text(const nlohmann::json& value, int indent = -1);

class JsonDocument;

// What is wrong with the value at `path`.
class JsonValueError : public Error {
 public:
  JsonValueError(std::string path, std::string message) : Error(std::move(message)), path_(std::move(path)) {}
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A value inside a JsonDocument, which must outlive it. A getter of the wrong type throws JsonValueError naming
// the source, the place ("model.layers[3].name"), what was expected and what is there.
class JsonView {
 public:
  bool is_null() const;
  bool is_object() const;
  bool is_array() const;
  bool is_string() const;
  bool is_number() const;
  bool is_bool() const;

  int64_t size() const;                             // of an array or object
  bool has(std::string_view key) const;             // present and not null
  JsonView operator[](std::string_view key) const;  // a null view when absent
  JsonView operator[](const char* key) const { return (*this)[std::string_view(key)]; }
  JsonView at(std::string_view key) const;  // JsonValueError when absent
  JsonView at(int64_t index) const;
  std::vector<std::string> keys() const;  // sorted

  int64_t integer(int64_t min = INT64_MIN, int64_t max = INT64_MAX) const;
  double number() const;  // an integer is one too
  bool boolean() const;
  std::string string() const;

  // For the key of an object: its value, or `otherwise` when it is absent or null.
  int64_t integer_or(std::string_view key, int64_t otherwise, int64_t min = INT64_MIN, int64_t max = INT64_MAX) const;
  double number_or(std::string_view key, double otherwise) const;
  bool boolean_or(std::string_view key, bool otherwise) const;
  std::string string_or(std::string_view key, std::string otherwise) const;

  const nlohmann::json& raw() const { return *value_; }
  const std::string& path() const { return path_; }  // "" for the outermost value
  const std::string& source() const;                 // of the document

 private:
  friend class JsonDocument;
  JsonView(const JsonDocument& document, const nlohmann::json& value, std::string path)
      : document_(&document), value_(&value), path_(std::move(path)) {}
  [[noreturn]] void wrong_type(std::string_view expected) const;

  const JsonDocument* document_;
  const nlohmann::json* value_;
  std::string path_;
};

class JsonDocument {
 public:
  static JsonDocument parse(std::string_view text, std::string source, const JsonLimits& limits = {});
  static JsonDocument load(const std::string& path, const JsonLimits& limits = {});
  ~JsonDocument();
  JsonDocument(JsonDocument&&) noexcept;

  JsonView root() const;
  const std::string& source() const { return source_; }

 private:
  JsonDocument(std::string source, std::unique_ptr<nlohmann::json> value);
  std::string source_;
  std::unique_ptr<nlohmann::json> value_;
};

}  // namespace weft
