// BidirectionalModel: a decoder whose tokens see all of their text, as what makes vectors and scores of texts.
#pragma once
#include "weft/models/text_encoder.h"
#include "weft/pretrained/forward_model.h"

namespace weft {

class BidirectionalModel final : public TextEncoder {
 public:
  // The model, whose configuration is `bidirectional`, outlives this. Throws UsageError for a mesh that cuts texts.
  explicit BidirectionalModel(ForwardModel& model);

  Sizes sizes() const override;
  TextRows no_texts() const override;
  Var hidden(Context& context, const TextRows& texts) override;
  // Of what each text's last token is left at.
  Tensor scores(const Var& hidden, const TextRows& texts) override;
  // Of each row [T, V], or [T, labels], on the ranks of the last stage. UsageError without a head.
  Tensor logits(const TextRows& texts);

 private:
  ForwardModel& model_;
};

}  // namespace weft
