// ModelSource: an opened model: its configuration, its tokenizer, and any part of its parameters.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "weft/models/decoder.h"
#include "weft/pretrained/embedding_rule.h"
#include "weft/pretrained/param_names.h"
#include "weft/pretrained/sampling_defaults.h"
#include "weft/pretrained/score_rule.h"
#include "weft/pretrained/special_ids.h"
#include "weft/pretrained/stored_tensors.h"
#include "weft/text/chat_template.h"
#include "weft/text/tokenizer.h"

namespace weft {

enum class SourceKind : uint8_t { checkpoint, hugging_face, gguf, random };

// May be used by many threads; each reads only what it needs.
class ModelSource {
 public:
  virtual ~ModelSource() = default;

  const std::string& path() const { return path_; }  // what was opened: of a run folder, its newest checkpoint
  SourceKind kind() const { return kind_; }
  const ModelConfig& config() const { return config_; }
  virtual const StoredTensors& tensors() const { return *tensors_; }
  virtual const std::vector<ParamNames>& names() const { return names_; }

  virtual int64_t step() const { return 0; }  // of training, where it is a checkpoint
  // Throws Error where the model has none that weft can read.
  virtual std::unique_ptr<Tokenizer> tokenizer() const = 0;
  virtual std::optional<ChatTemplate::Text> chat_template() const { return {}; }
  virtual SpecialIds special_ids() const { return {}; }  // that its files name, beside the tokenizer's own
  virtual SamplingDefaults sampling_defaults() const { return {}; }
  virtual EmbeddingRule embedding_rule() const { return {}; }
  virtual ScoreRule score_rule() const { return default_score_rule(config().labels); }

  // In which a parameter is stored, if weft computes with it.
  virtual std::optional<DType> dtype_of(const std::string& param) const;
  // Elements [first, first + out.size()) of a parameter or of a router's bias, as one rank would have it, row by row.
  virtual void read(const std::string& param, int64_t first, std::span<float> out) const;

  // A parameter as its files hold it: each stored tensor in one piece, of elements of one dtype.
  struct StoredValues {
    const ParamNames* names;
    DType dtype;
    std::vector<const std::byte*> stored;
    // Elements from `first` on, counted as read() does, as many as `out` has room for.
    void copy(int64_t first, std::span<std::byte> out) const;
  };
  virtual std::optional<StoredValues> values_of(const std::string& param) const;

  // A matrix, or experts' one behind the other, of which each row is a row of a stored matrix in blocks; nothing
  // where it is stored otherwise. Where no product reads its blocks, or columns are in another order than the stored
  // ones, which cuts them, there is nothing in `stored`, and `type` is what its values are best rounded to.
  struct RowsOfBlocks {
    struct Matrix {
      Bytes bytes;  // as StoredBlocks has them
      const StoredInfo* info;
    };
    BlockType type;
    std::vector<Matrix> stored;  // one, or one for each expert
    int64_t rows_of_each;        // of the parameter's
    IndexMap rows, cols;         // of one stored matrix; runs of columns are whole blocks
    const StoredTensors* tensors;
  };
  virtual std::optional<RowsOfBlocks> blocks_of(const std::string& param) const;

 protected:
  ModelSource(std::string path, SourceKind kind, ModelConfig config);
  // Throws Error naming the tensor that is missing, has another shape, or belongs to no parameter and to none of the
  // patterns. base: what stored names may lack.
  void bind(std::unique_ptr<StoredTensors> tensors, std::vector<ParamNames> names, std::string_view base = {},
            std::span<const std::string_view> ignored = {});

 private:
  struct Bound {
    const ParamNames* names;
    std::vector<const StoredInfo*> stored;
  };
  const Bound& find_bound(const std::string& param) const;
  const StoredInfo& find_stored(const ParamNames& names, const std::string& stored, std::string_view base) const;
  void refuse_unknown(std::string_view base, std::span<const std::string_view> ignored) const;

  std::string path_;
  SourceKind kind_;
  ModelConfig config_;
  std::unique_ptr<StoredTensors> tensors_;
  std::vector<ParamNames> names_;
  std::unordered_map<std::string, Bound> bound_;
};

// Whether a model is opened with the part that predicts a token further on, where it has one that weft knows: its
// configuration then says so (ModelConfig::mtp_layers).
enum class WithMtp : bool { no, yes };
// As a configuration has it.
inline WithMtp with_mtp_as(const ModelConfig& config) { return WithMtp(config.mtp_layers > 0); }

// What a command's MODEL names: a weft checkpoint, a run folder (its newest valid checkpoint), the folder of a
// Hugging Face model, a .gguf file, or "random:" and a preset (random_model.h). Throws Error saying what was found
// instead. check: of a checkpoint.
std::unique_ptr<ModelSource> open_model(const std::string& path,
                                        Checkpoint::Check check = Checkpoint::Check::all_bytes,
                                        WithMtp mtp = WithMtp::no);

// Throws UsageError where a model scores texts or reads them in both directions, and writes none. named: what names
// it, as "--draft models/small".
void require_writing(const ModelConfig& config, std::string_view named);

// What a text's vector is where no file says: of a token that sees all before it the last one knows most.
inline Pooling usual_pooling(const ModelConfig& c) { return c.bidirectional ? Pooling::mean : Pooling::last; }

// The tokens that end a text: the tokenizer's, and those that the model's files name.
std::vector<int32_t> stop_tokens(const ModelSource& source, const Tokenizer& tokenizer);
// A text to continue: with what the model expects before it, but not with what would end it.
std::vector<int32_t> encode_prompt(const ModelSource& source, const Tokenizer& tokenizer, std::string_view text);

// Its configuration alone.
ModelConfig model_config_of(const std::string& path, WithMtp mtp = WithMtp::no);

// The checkpoint folder that `path` means: itself, or the newest valid one below it.
std::string find_checkpoint(const std::string& path);
// Whether it is the folder of a Hugging Face model.
bool is_hugging_face_folder(const std::string& path);

// Of a model, of a tokenizer's JSON file, or "byte".
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& model_or_tokenizer);

// Reads this rank's part of a parameter, which has its memory.
void load_value(Context& context, const ModelSource& source, const Param& param);

// Reads this rank's part of every one of these parameters; they must have their memory, unless they are held in
// blocks alone, which is left as it is.
void load_values(Context& context, const ModelSource& source, std::span<Param* const> params);
// Of the whole model, with the biases of routers.
void load_values(Context& context, const ModelSource& source, Decoder& model);

}  // namespace weft
