// TextRows: several texts, one behind the other, as the rows of one pass; none of them sees another.
#pragma once
#include <span>
#include <vector>

#include "weft/nn/pass.h"

namespace weft {

// It outlives the passes made of it.
class TextRows {
 public:
  // first_position: of each text's first token. tells_apart: whether second texts are of another kind. reach: of
  // local layers, see EncoderShape; 0: there are none.
  TextRows(int64_t first_position, bool tells_apart, int64_t reach = 0)
      : first_position_(first_position), tells_apart_(tells_apart), reach_(reach) {}
  TextRows(const TextRows&) = delete;

  // At least one token. second_text: where the second of two texts begins among them; 0: there is one.
  void add(std::span<const int32_t> ids, int64_t second_text = 0);

  int64_t num_rows() const { return int64_t(ids_.size()); }
  int64_t num_texts() const { return int64_t(spans_.size()); }
  Pass pass() const { return pass_of(spans_); }
  Pass local_pass() const { return pass_of(local_spans_); }  // its rule's window is window_of(reach)
  // Of each row.
  const int32_t* ids() const { return ids_.data(); }
  const int32_t* positions() const { return positions_.data(); }
  const int32_t* kinds() const { return kinds_.data(); }  // 0 or, of a second text, 1
  const int32_t* texts() const { return texts_.data(); }  // which text it is of
  // Of each text, the rows of its first and last tokens, and how many it has.
  std::span<const int32_t> firsts() const { return firsts_; }
  int32_t last(int64_t text) const { return spans_[size_t(text)].q_end - 1; }
  int64_t num_tokens(int64_t text) const { return spans_[size_t(text)].q_end - spans_[size_t(text)].q_begin; }

 private:
  void add_local_spans(const AttentionSpan& text);
  Pass pass_of(const std::vector<AttentionSpan>& spans) const;

  int64_t first_position_;
  bool tells_apart_;
  int64_t reach_;
  std::vector<int32_t> ids_, positions_, kinds_, texts_, firsts_;
  std::vector<AttentionSpan> spans_, local_spans_;
};

}  // namespace weft
