// WordPiece: candidates shrink by a character from the longest that the vocabulary could hold.
#include "weft/text/pipeline/word_piece.h"

#include "weft/text/utf8.h"

namespace weft {

void WordPiece::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  const size_t start = ids.size();
  const auto give_up = [&] {
    ids.resize(start);
    ids.push_back(options_.unknown);
  };
  if (int64_t(count_code_points(piece)) > options_.max_input_chars_per_word) return give_up();
  std::string candidate;
  while (!piece.empty()) {
    candidate = ids.size() == start ? "" : options_.continuing_subword_prefix;
    const size_t prefix = candidate.size();
    candidate += piece.substr(0, vocabulary_.longest());
    int32_t id = vocabulary_.find(candidate);
    while (id < 0 && candidate.size() > prefix) {
      do candidate.pop_back();
      while (candidate.size() > prefix && candidate.size() - prefix < piece.size() &&
             (uint8_t(piece[candidate.size() - prefix]) & 0xC0) == 0x80);
      if (candidate.size() > prefix) id = vocabulary_.find(candidate);
    }
    if (id < 0 || candidate.size() == prefix) return give_up();
    ids.push_back(id);
    piece.remove_prefix(candidate.size() - prefix);
  }
}

}  // namespace weft
