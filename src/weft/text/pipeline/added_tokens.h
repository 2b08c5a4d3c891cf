// AddedTokens: tokens that are found in a text before anything else is done to it, such as <|endoftext|>.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/base/function_ref.h"
#include "weft/text/pipeline/byte_trie.h"
#include "weft/text/pipeline/normalizer.h"

namespace weft {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;      // a control token: text is read as one only where the caller says so
  bool single_word = false;  // not inside a word
  bool lstrip = false;       // takes white space before it along
  bool rstrip = false;       // and behind it
  bool normalized = false;   // looked for in the normalized text, and itself normalized
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // `normalizer` may be null. Throws Error that names `origin` for a token that is empty or too long.
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer, std::string_view origin);

  enum class Which { raw, normalized };
  // Calls visit(begin, end, id) for the stretches of `text` in order: added tokens, and what lies between them (id
  // -1).
  void split(std::string_view text, Which which, bool parse_special,
             FunctionRef<void(size_t begin, size_t end, int32_t id)> visit) const;

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  const AddedToken* find(int32_t id) const;
  const AddedToken* find(std::string_view content) const;

  // Whether a token, with the white space that it takes along, may lie across `at`, a place of the text at least
  // longest() bytes before its end.
  bool may_span(std::string_view text, size_t at) const;
  size_t longest() const { return longest_; }  // bytes of a token

 private:
  std::vector<AddedToken> tokens_;
  ByteTrie raw_, normalized_;  // values: indices of tokens_
  std::unordered_map<int32_t, size_t> by_id_;
  std::unordered_map<std::string, size_t> by_content_;
  size_t longest_ = 0;
  bool takes_spaces_ = false;            // some token does: lstrip, rstrip
  bool spans_normalized_space_ = false;  // some token holds white space that the normalizer may have made
};

}  // namespace weft
