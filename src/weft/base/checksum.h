// Checksums: XXH3-128 digests that find damaged bytes. They do not resist an attacker who can write the digest too.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "weft/base/bytes.h"

namespace weft {

// 16 bytes in canonical (big-endian) order: to_hex() prints what `xxhsum -H2` prints.
struct Digest {
  std::array<uint8_t, 16> value{};
  bool operator==(const Digest&) const = default;
  std::string to_hex() const;  // 32 lower-case digits
};

Digest digest_of(Bytes bytes);

// The digest of bytes that come in pieces.
class Digester {
 public:
  Digester();
  ~Digester();
  Digester(Digester&&) noexcept;
  Digester& operator=(Digester&&) noexcept;

  void update(Bytes bytes);
  Digest finish();  // and starts anew

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft
