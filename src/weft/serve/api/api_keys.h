// ApiKeys: who may use the server; keys are kept as digests and compared in constant time.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/serve/http/message.h"

namespace weft::api {

class ApiKeys {
 public:
  ApiKeys() = default;  // none: everybody may
  // A key a line; empty lines and those that begin with # do not count. Throws UsageError for a file without a key,
  // and for a key that is shorter than 16 characters or has a space.
  static ApiKeys load(const std::string& path);
  explicit ApiKeys(const std::vector<std::string>& keys);

  bool empty() const { return digests_.empty(); }
  // By "Authorization: Bearer KEY", "x-api-key: KEY", or the password that a browser asks for.
  bool admits(const http::Request& request) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  static Digest digest_of(std::string_view key);
  bool knows(std::string_view key) const;

  std::vector<Digest> digests_;
};

}  // namespace weft::api
