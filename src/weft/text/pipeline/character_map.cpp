// CharacterMap: walking a Darts double array with every index checked.
#include "weft/text/pipeline/character_map.h"

#include "weft/base/bytes.h"
#include "weft/base/error.h"
#include "weft/text/pipeline/normalizer.h"
#include "weft/text/utf8.h"

namespace weft {
namespace {

// The fields of a unit (Darts-clone): either a value, in the unit that a NUL label leads to, or label and offset.
constexpr uint32_t label_of(uint32_t unit) { return unit & 0x800000FFu; }  // the high bit: a value, no label
constexpr bool has_value(uint32_t unit) { return (unit >> 8 & 1) != 0; }
constexpr uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFFu; }
constexpr uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

}  // namespace

CharacterMap::CharacterMap(std::string_view blob, std::string_view origin) {
  if (blob.empty()) return;
  const Bytes bytes = bytes_of(blob);
  const uint32_t trie_bytes = blob.size() >= 4 ? load_le<uint32_t>(bytes.data()) : 0;
  if (trie_bytes < 4 || trie_bytes % 4 != 0 || trie_bytes > blob.size() - 4)
    throw Error("{}: the table of normalized characters is damaged: {} bytes do not hold a trie of {}", origin,
                blob.size(), trie_bytes);
  units_.resize(trie_bytes / 4);
  for (size_t i = 0; i < units_.size(); ++i) units_[i] = load_le<uint32_t>(bytes.data() + 4 + 4 * i);
  replacements_ = replace_invalid_utf8(blob.substr(4 + trie_bytes));
  if (replacements_.size() != blob.size() - 4 - trie_bytes)
    throw Error("{}: the table of normalized characters is damaged: its replacements are not UTF-8", origin);
}

CharacterMap::Replacement CharacterMap::find(std::string_view text, bool wants_longest) const {
  Replacement found;
  if (units_.empty()) return found;
  size_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size() && text[i] != '\0'; ++i) {
    node ^= uint8_t(text[i]);
    if (node >= units_.size() || label_of(units_[node]) != uint8_t(text[i])) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_value(unit) || node >= units_.size()) continue;
    const uint32_t begin = value_of(units_[node]);
    if (begin > replacements_.size()) break;
    const size_t end = std::min(replacements_.find('\0', begin), replacements_.size());
    found = {i + 1, std::string_view(replacements_).substr(begin, end - begin)};
    if (!wants_longest) break;
  }
  return found;
}

namespace {

constexpr size_t kLongestWholeCluster = 5;  // bytes; longer ones are looked up a code point at a time

class PrecompiledNormalizer : public Normalizer {
 public:
  PrecompiledNormalizer(std::string_view blob, std::string_view origin) : map_(blob, origin) {}
  void apply(std::string& text, TextPlace) const override {
    std::string out;
    out.reserve(text.size());
    for_each_grapheme(text, [&](std::string_view cluster) {
      if (cluster.size() <= kLongestWholeCluster) {
        // The shortest entry stands for the whole cluster: so models were converted, and so they are used.
        if (const auto whole = map_.shortest(cluster); whole.length > 0) {
          out += whole.text;
          return;
        }
      }
      while (!cluster.empty()) {
        const std::string_view one = cluster.substr(0, first_code_point(cluster).length);
        const auto part = map_.shortest(one);
        out += part.length > 0 ? part.text : one;
        cluster.remove_prefix(one.size());
      }
    });
    text = std::move(out);
  }

 private:
  CharacterMap map_;
};

}  // namespace

std::unique_ptr<Normalizer> precompiled_normalizer(std::string map, std::string_view origin) {
  return std::make_unique<PrecompiledNormalizer>(map, origin);
}

}  // namespace weft
