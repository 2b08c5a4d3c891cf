// Checksums: known digests, the same in pieces, another after any flipped bit.
#include "weft/base/checksum.h"

#include <random>

namespace weft {
namespace {

TEST(Checksum, IsXxh3) { EXPECT_EQ(digest_of({}).to_hex(), "99aa06d3014798d86001c324468d497f"); }

TEST(Checksum, PiecesEqualTheWhole) {
  std::mt19937 random(1);
  for (const size_t size : {0, 1, 240, 241, 1000, 100'000}) {
    std::string text(size, ' ');
    for (char& c : text) c = char(random());
    Digester digester;
    for (size_t at = 0; at < size;) {
      const size_t count = std::min<size_t>(1 + random() % 700, size - at);
      digester.update(bytes_of(std::string_view(text).substr(at, count)));
      at += count;
    }
    const Digest whole = digest_of(bytes_of(text));
    EXPECT_EQ(digester.finish(), whole);
    EXPECT_EQ(digester.finish(), digest_of({})) << "finish starts anew";
    for (size_t i = 0; i < std::min<size_t>(size, 200); ++i) {
      const size_t bit = random() % (size * 8);
      text[bit / 8] ^= char(1 << bit % 8);
      EXPECT_NE(digest_of(bytes_of(text)), whole);
      text[bit / 8] ^= char(1 << bit % 8);
    }
  }
}

}  // namespace
}  // namespace weft
