// GgufDescription: what a GGUF file says of its model beside the weights, as plain data; read from a file, or
// written.
#pragma once
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "weft/formats/gguf.h"
#include "weft/formats/gguf_writer.h"

namespace weft {

struct GgufDescription {
  using Value = std::variant<bool, int64_t, double, std::string, std::vector<bool>, std::vector<int64_t>>;
  std::string source;                      // that errors name
  std::string architecture;                // of general.architecture
  std::map<std::string, Value> keys = {};  // without the "ARCHITECTURE." that they begin with
  // What angles of each pair are divided by: rope_freqs, rope_factors_long and rope_factors_short.
  std::map<std::string, std::vector<float>> factors = {};
  // What the list of tensors says.
  int64_t vocab = 0;
  bool has_head = true, has_qkv_bias = false, has_output_bias = false, has_mlp_bias = false;
  bool has_head_bias = false;
  bool has_head_norm = false, has_router_bias = false;
  bool lacks_values = false;  // some layer with keys has no projection to values
  bool has_layer_scale = false, has_state_norm = false;
  std::vector<std::string> notes = {};  // when written: what llama.cpp does otherwise
};

// Throws Error naming the file and what is missing.
GgufDescription describe(const GgufFile& file);

// general.architecture and the keys.
void add_keys(GgufMetadata& metadata, const GgufDescription& description);

// The keys of an architecture; one description of them both reads and writes. Reading checks types and ranges and
// throws Error naming the file and the key; a key that is absent has the default. Writing writes every key.
class GgufFields {
 public:
  explicit GgufFields(const GgufDescription& from) : from_(&from) {}
  explicit GgufFields(GgufDescription& to) : from_(&to), to_(&to) {}
  bool is_reading() const { return to_ == nullptr; }
  bool has(const char* key) const { return from_->keys.contains(key); }

  void size(const char* key, int64_t& value);  // must be there
  void size(const char* key, int64_t& value, int64_t otherwise);
  void number(const char* key, float& value);  // must be there
  void number(const char* key, double& value, double otherwise);
  void number(const char* key, float& value, double otherwise);
  void flag(const char* key, bool& value, bool otherwise);
  void text(const char* key, std::string& value, const std::string& otherwise);
  const std::vector<bool>* flags(const char* key) const;  // reading; null: there is no such list
  void set(const char* key, GgufDescription::Value value) { to_->keys[key] = std::move(value); }
  void note(std::string text) { to_->notes.push_back(std::move(text)); }

  const GgufDescription& from() const { return *from_; }
  GgufDescription& to() { return *to_; }
  [[noreturn]] void refuse(const char* key, std::string_view what) const;

 private:
  const GgufDescription::Value* find(const char* key) const;
  [[noreturn]] void refuse_missing(const char* key) const;
  double number_at(const char* key, double otherwise) const;
  int64_t size_at(const char* key, const GgufDescription::Value& value) const;

  const GgufDescription* from_;
  GgufDescription* to_ = nullptr;
};

}  // namespace weft
