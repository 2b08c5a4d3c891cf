// Model folders: finding the checkpoint, then reading its model.
#include "weft/serve/model_folder.h"

#include <sys/stat.h>

#include "weft/base/file.h"
#include "weft/checkpoint/checkpoint_store.h"
#include "weft/models/model_json.h"
#include "weft/pretrained/tokenizer_path.h"
#include "weft/text/tokenizer_files.h"

namespace weft {
namespace {

bool is_folder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string newest_in(const std::string& folder) {
  const FoundCheckpoint found = CheckpointStore(folder).newest_valid();
  if (found.checkpoint) return found.checkpoint->path();
  if (found.rejected.empty()) throw Error("{} holds no checkpoint yet: let the run save one first", folder);
  throw Error("{} holds no valid checkpoint; the newest, {}, was rejected: {}", folder, found.rejected[0].path,
              found.rejected[0].reason);
}

}  // namespace

std::string find_checkpoint(const std::string& path) {
  FileSystem& fs = FileSystem::real();
  if (!exists(fs, path)) throw Error("{} does not exist: name a checkpoint or a run folder", path);
  if (!is_folder(path)) throw Error("{} is a file: name a checkpoint or a run folder", path);
  if (exists(fs, join_path(path, "manifest.json"))) return path;
  const std::string checkpoints = join_path(path, "checkpoints");
  if (is_folder(checkpoints)) return newest_in(checkpoints);
  if (exists(fs, join_path(path, "config.json")))
    throw Error("{} is a Hugging Face model, which this version does not read yet: name a weft checkpoint", path);
  return newest_in(path);
}

LoadedModel load_model(Context& context, const std::string& path, DType dtype) {
  const Checkpoint checkpoint = Checkpoint::open(find_checkpoint(path));
  LoadedModel loaded{.path = checkpoint.path(), .step = checkpoint.step(), .model = {}, .tokenizer = {}};
  const std::string file = join_path(checkpoint.path(), kModelName);
  loaded.model = std::make_unique<Decoder>(parse_model_json(checkpoint.read(kModelName), file));
  loaded.tokenizer = parse_tokenizer(checkpoint.read(kTokenizerName), join_path(checkpoint.path(), kTokenizerName));
  loaded.model->allocate(context, dtype);
  for (Param* p : loaded.model->params()) {
    const Tensor stored = dtype == DType::f32 ? p->value : context.empty(DType::f32, p->shape);
    const NamedTensor named{p->name, stored};
    checkpoint.load(kModelGroup, {&named, 1}, {.allow_unused = true});
    if (dtype != DType::f32) context.kernels.convert(context.stream, p->value, stored);
    p->value_changed();
  }
  for (RouterBias* b : loaded.model->router_biases()) {
    const NamedTensor named{b->bias.name, b->bias.value};
    checkpoint.load(kModelGroup, {&named, 1}, {.allow_unused = true});
  }
  return loaded;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name) {
  FileSystem& fs = FileSystem::real();
  const bool is_checkpoint = exists(fs, join_path(name, "manifest.json"));
  if (!is_checkpoint && (!is_folder(name) || holds_tokenizer(fs, name)))
    return open_tokenizer_path(fs, name, "MODEL_OR_TOKENIZER");
  const Checkpoint checkpoint = Checkpoint::open(find_checkpoint(name), Checkpoint::Check::sizes);
  return parse_tokenizer(checkpoint.read(kTokenizerName), join_path(checkpoint.path(), kTokenizerName));
}

}  // namespace weft
