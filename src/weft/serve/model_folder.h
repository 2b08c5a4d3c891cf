// Model folders: opens what a command's MODEL names: a weft checkpoint, or a run folder that holds some.
#pragma once
#include <memory>
#include <string>

#include "weft/models/decoder.h"
#include "weft/text/tokenizer.h"

namespace weft {

struct LoadedModel {
  std::string path;  // the checkpoint that was opened
  int64_t step = 0;
  std::unique_ptr<Decoder> model;  // with its values, in the dtype asked for
  std::unique_ptr<Tokenizer> tokenizer;
};

// The checkpoint folder that `path` means: itself, or the newest valid one below it. Throws Error saying what was
// found instead.
std::string find_checkpoint(const std::string& path);

LoadedModel load_model(Context& context, const std::string& path, DType dtype);

// Of a checkpoint or run folder, of a tokenizer's JSON file, or "byte".
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& model_or_tokenizer);

}  // namespace weft
