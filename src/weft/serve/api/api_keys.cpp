// ApiKeys: SHA-256 on both sides, then every digest is compared in full.
#include "weft/serve/api/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>

#include "weft/base/file.h"
#include "weft/text/base64.h"

namespace weft::api {

constexpr uint64_t kMostFileBytes = 1 << 20;
constexpr size_t kShortestKey = 16;

ApiKeys::Digest ApiKeys::digest_of(std::string_view key) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

ApiKeys::ApiKeys(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) digests_.push_back(digest_of(key));
}

ApiKeys ApiKeys::load(const std::string& path) {
  const std::string text = read_file(path, kMostFileBytes);
  std::vector<std::string> keys;
  for (size_t at = 0, line = 1; at < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view key = std::string_view(text).substr(at, end - at);
    while (!key.empty() && (key.back() == '\r' || key.back() == ' ')) key.remove_suffix(1);
    at = end + 1;
    if (key.empty() || key[0] == '#') continue;
    if (key.size() < kShortestKey || key.find_first_of(" \t") != std::string_view::npos)
      throw UsageError("{}, line {}: a key has at least {} characters and no space", path, line, kShortestKey);
    keys.emplace_back(key);
  }
  if (keys.empty())
    throw UsageError("{} has no key: write one a line, of at least {} characters", path, kShortestKey);
  return ApiKeys(keys);
}

bool ApiKeys::knows(std::string_view key) const {
  const Digest given = digest_of(key);
  bool is_known = false;
  for (const Digest& digest : digests_) {
    const bool is_same = CRYPTO_memcmp(given.data(), digest.data(), digest.size()) == 0;
    is_known = is_known | is_same;
  }
  return is_known;
}

bool ApiKeys::admits(const http::Request& request) const {
  if (empty()) return true;
  const std::string_view authorization = request.header("authorization");
  if (authorization.empty()) return knows(request.header("x-api-key"));
  const size_t space = std::min(authorization.find(' '), authorization.size());
  std::string scheme(authorization.substr(0, space));
  std::transform(scheme.begin(), scheme.end(), scheme.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  const std::string_view given = authorization.substr(std::min(space + 1, authorization.size()));
  if (scheme == "bearer") return knows(given);
  if (scheme != "basic") return false;
  const std::string pair = bytes_of_base64(given).value_or("");
  return knows(std::string_view(pair).substr(std::min(pair.find(':') + 1, pair.size())));
}

}  // namespace weft::api
