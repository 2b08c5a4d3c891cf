// XXH3-128 by libxxhash.
#include "weft/base/checksum.h"

#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // picks SSE2, AVX2 or AVX-512 when first called
#else
#include <xxhash.h>
#endif

#include "weft/base/error.h"

namespace weft {
namespace {

Digest canonical(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  Digest digest;
  std::memcpy(digest.value.data(), bytes.digest, digest.value.size());
  return digest;
}

}  // namespace

std::string Digest::to_hex() const {
  std::string hex;
  hex.reserve(2 * value.size());
  for (const uint8_t byte : value) fmt::format_to(std::back_inserter(hex), "{:02x}", byte);
  return hex;
}

Digest digest_of(Bytes bytes) { return canonical(XXH3_128bits(bytes.data(), bytes.size())); }

struct Digester::State {
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> xxh{XXH3_createState()};
};

Digester::Digester() : state_(std::make_unique<State>()) {
  check(state_->xxh != nullptr, "no memory for a checksum");
  XXH3_128bits_reset(state_->xxh.get());
}
Digester::~Digester() = default;
Digester::Digester(Digester&&) noexcept = default;
Digester& Digester::operator=(Digester&&) noexcept = default;

void Digester::update(Bytes bytes) { XXH3_128bits_update(state_->xxh.get(), bytes.data(), bytes.size()); }

Digest Digester::finish() {
  const Digest digest = canonical(XXH3_128bits_digest(state_->xxh.get()));
  XXH3_128bits_reset(state_->xxh.get());
  return digest;
}

}  // namespace weft
