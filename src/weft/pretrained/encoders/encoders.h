// Encoders: the models that are no decoders, from the folders that Hugging Face's library saves; BERT and its kind
// from GGUF files, too.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "weft/base/json.h"
#include "weft/models/bert.h"
#include "weft/models/clip.h"
#include "weft/models/t5.h"
#include "weft/models/vit.h"
#include "weft/parallel/mesh.h"
#include "weft/text/tokenizer.h"

namespace weft {

// bert: RoBERTa, MPNet, DistilBERT, NomicBERT and ModernBERT, too.
enum class EncoderKind : uint8_t { bert, t5, vit, clip };

// Of a folder's config.json, or of a GGUF file, which holds none but the first; nothing when it is none of them, or
// there is no such file.
std::optional<EncoderKind> encoder_kind(const std::string& path);

// How a model runs: its weights are in `dtype`, and the layers are cut over the ranks of the mesh, or, without one,
// are on this rank alone.
struct EncoderUse {
  DType dtype = DType::f32;
  const Mesh* mesh = nullptr;
};

// With this rank's part of their weights. The context and the mesh outlive the model. Throw Error naming the file and
// the key or the tensor that is missing or out of range, UsageError where the mesh cannot hold the model.
std::unique_ptr<Bert> open_bert(Context& context, const std::string& path, const EncoderUse& use = {});
std::unique_ptr<T5> open_t5(Context& context, const std::string& folder, const EncoderUse& use = {});
std::unique_ptr<Vit> open_vit(Context& context, const std::string& folder, const EncoderUse& use = {});
std::unique_ptr<Clip> open_clip(Context& context, const std::string& folder, const EncoderUse& use = {});

// The ids of a text that T5 reads or writes, with the token that ends them.
std::vector<int32_t> encode_for_t5(const Tokenizer& tokenizer, const T5Config& config, std::string_view text);

}  // namespace weft
