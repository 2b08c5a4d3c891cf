// TextEncoderSource: what the folder, or the GGUF file, of an encoder of texts says beside its weights.
#pragma once
#include <memory>
#include <string>

#include "weft/pretrained/embedding_rule.h"
#include "weft/pretrained/encoders/encoders.h"
#include "weft/pretrained/score_rule.h"

namespace weft {

class TextEncoderSource {
 public:
  // Throws Error naming the file and the key that is missing or out of range, or the folder that holds no such model.
  explicit TextEncoderSource(const std::string& path);

  const std::string& path() const { return path_; }
  const BertConfig& config() const { return config_; }
  // Tokens of a text: as many as the model has positions for, or as its makers cut texts to (max_seq_length of
  // sentence_bert_config.json, model_max_length of tokenizer_config.json).
  int64_t context() const { return context_; }
  const EmbeddingRule& embedding_rule() const { return embedding_; }
  const ScoreRule& score_rule() const { return scores_; }  // without labels where the model has none
  DType dtype() const { return dtype_; }                   // that its matrices are stored in; f32 of wider ones
  std::unique_ptr<Tokenizer> tokenizer() const;
  // What is put around a pair of texts; nothing where the tokenizer does not say. The model tells the second apart
  // where it has kinds of text and its tokenizer gives them (model_input_names of tokenizer_config.json). A GGUF file
  // says what is put around one text, and of which kind its tokenizer is, by which pairs are as well.
  std::optional<PairSurroundings> around_pair(const Tokenizer& tokenizer) const;

 private:
  void read_folder();
  void read_gguf();
  std::optional<PairSurroundings> around_pair_of_folder(const Tokenizer& tokenizer) const;
  std::optional<PairSurroundings> around_pair_of_gguf(const Tokenizer& tokenizer) const;

  std::string path_;
  BertConfig config_;
  DType dtype_ = DType::f32;
  int64_t context_ = 0;
  EmbeddingRule embedding_;
  ScoreRule scores_;
};

}  // namespace weft
