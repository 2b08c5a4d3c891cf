// TextRows: several texts, one behind the other, as the rows of one pass; none of them sees another.
#pragma once
#include <span>
#include <vector>

#include "weft/nn/pass.h"

namespace weft {

// It outlives the passes made of it.
class TextRows {
 public:
  // first_position: of each text's first token. tells_apart: whether second texts are of another kind.
  TextRows(int64_t first_position, bool tells_apart) : first_position_(first_position), tells_apart_(tells_apart) {}
  TextRows(const TextRows&) = delete;

  // At least one token. second_text: where the second of two texts begins among them; 0: there is one.
  void add(std::span<const int32_t> ids, int64_t second_text = 0);

  int64_t num_rows() const { return int64_t(ids_.size()); }
  int64_t num_texts() const { return int64_t(spans_.size()); }
  Pass pass() const;
  // Of each row.
  const int32_t* ids() const { return ids_.data(); }
  const int32_t* positions() const { return positions_.data(); }
  const int32_t* kinds() const { return kinds_.data(); }  // 0 or, of a second text, 1
  // Of each text, the row of its first token.
  std::span<const int32_t> firsts() const { return firsts_; }

 private:
  int64_t first_position_;
  bool tells_apart_;
  std::vector<int32_t> ids_, positions_, kinds_, firsts_;
  std::vector<AttentionSpan> spans_;
};

}  // namespace weft
