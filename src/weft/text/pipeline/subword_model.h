// SubwordModel: cuts a piece of text into tokens of its vocabulary.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "weft/text/pipeline/vocabulary.h"

namespace weft {

// Immutable and safe to share.
class SubwordModel {
 public:
  virtual ~SubwordModel() = default;
  virtual std::string_view name() const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
  // Appends the ids of `piece`, in time linear in its length but for a logarithm. Throws Error when the vocabulary
  // has no token for a character and none for what is unknown.
  virtual void encode(std::string_view piece, std::vector<int32_t>& ids) const = 0;
};

// The ids of the tokens "<0x00>" to "<0xFF>", to which characters outside the vocabulary fall back.
class ByteTokens {
 public:
  ByteTokens() { ids_.fill(-1); }
  explicit ByteTokens(const Vocabulary& vocabulary);
  // False, and nothing appended, when one of the bytes has no token.
  bool append(std::string_view bytes, std::vector<int32_t>& ids) const;

 private:
  std::array<int32_t, 256> ids_;
};

// The byte that a spelling such as "<0x0A>" stands for, or -1.
int byte_of_spelling(std::string_view spelling);

}  // namespace weft
