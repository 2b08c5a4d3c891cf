// BertFiles: what a folder of Hugging Face's library or a GGUF file holds of a BERT.
#pragma once
#include <memory>
#include <string>

#include "weft/pretrained/encoders/encoders.h"
#include "weft/pretrained/encoders/named_params.h"

namespace weft {

class GgufFile;

struct BertFiles {
  BertConfig config;
  const EncoderNames* names;
  std::unique_ptr<StoredTensors> stored;
};

// Throw Error naming the file and the key or the tensor that is missing or out of range.
BertFiles open_hf_bert(const std::string& folder);
BertFiles open_gguf_bert(const std::string& path);
BertFiles open_bert_files(const std::string& path);  // either

bool is_bert(const JsonView& config);
bool is_bert(const GgufFile& file);

}  // namespace weft
