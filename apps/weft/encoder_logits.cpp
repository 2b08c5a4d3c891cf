// EncoderLogits: inputs of texts and images.
#include "encoder_logits.h"

#include "weft/autograd/floats_on_host.h"
#include "weft/base/file.h"
#include "weft/base/json.h"

namespace weft::app {
namespace {

void add_numbers(const JsonView& json, std::vector<float>& out) {
  if (!json.is_array()) return out.push_back(float(json.number()));
  for (int64_t i = 0; i < json.size(); ++i) add_numbers(json.at(i), out);  // its depth is limited where it was parsed
}

std::vector<float> read_pixels(const std::string& file, const PatchShape& shape) {
  constexpr uint64_t kMostBytes = uint64_t(64) << 20;
  if (file.empty()) throw UsageError("the model reads images: name a file of their numbers by --pixels-file");
  const JsonDocument json = JsonDocument::parse(read_file(file, kMostBytes), file);
  std::vector<float> pixels;
  add_numbers(json.root(), pixels);
  const int64_t wanted = shape.channels * shape.image * shape.image;
  if (int64_t(pixels.size()) != wanted)
    throw UsageError("--pixels-file {}: {} numbers, where the model reads {} channels of {} x {} = {}", file,
                     pixels.size(), shape.channels, shape.image, shape.image, wanted);
  return pixels;
}

std::vector<int32_t> read_ids(const std::string& text, const char* option, int64_t vocab, int64_t context) {
  const std::vector<int32_t> ids = parse_ids(text, option, vocab);
  if (ids.empty()) throw UsageError("there are no tokens: write {} 1,2,3", option);
  if (context > 0 && int64_t(ids.size()) > context)
    throw UsageError("{}: {} tokens were given, and the model's context is {}: give fewer", option, ids.size(),
                     context);
  return ids;
}

// Nothing of an empty tensor, as ranks have it that are not of the last stage.
nlohmann::json rows_of(Context& context, const Tensor& t) {
  nlohmann::json rows = nlohmann::json::array();
  if (!t) return rows;
  const Tensor floats = floats_on_host(context, t);
  for (int64_t i = 0; i < t.dim(0); ++i)
    rows.push_back(std::span<const float>(floats.data<float>() + i * t.dim(1), size_t(t.dim(1))));
  return rows;
}

nlohmann::json results_of(EncoderKind kind, Context& context, const std::string& folder, const EncoderUse& use,
                          const EncoderInputs& in) {
  switch (kind) {
    case EncoderKind::bert: {
      const auto bert = open_bert(context, folder, use);
      const auto ids = read_ids(in.ids, "--ids", bert->config().vocab, bert->config().context());
      TextRows text = bert->no_texts();
      text.add(ids);
      const Var hidden = bert->hidden(context, text);
      const bool scores_texts = bert->config().labels > 0;
      return {{"ids", ids},
              {"logits", rows_of(context, scores_texts ? bert->scores(hidden, text) : bert->logits(hidden))}};
    }
    case EncoderKind::t5: {
      const auto t5 = open_t5(context, folder, use);
      const auto ids = read_ids(in.ids, "--ids", t5->config().vocab, 0);
      const auto written = read_ids(in.decoder_ids, "--decoder-ids", t5->config().vocab, 0);
      const Var memory = t5->encode(context, ids);
      return {
          {"ids", ids}, {"decoder_ids", written}, {"logits", rows_of(context, t5->logits(context, written, memory))}};
    }
    case EncoderKind::vit: {
      const auto vit = open_vit(context, folder, use);
      const auto pixels = read_pixels(in.pixels_file, vit->config().patches);
      return {{"logits", rows_of(context, vit->logits(context, pixels))}};
    }
    case EncoderKind::clip: {
      const auto clip = open_clip(context, folder, use);
      if (in.ids.empty() && in.pixels_file.empty())
        throw UsageError("give a text by --ids, an image by --pixels-file, or both");
      nlohmann::json results;
      if (!in.ids.empty()) {
        const auto ids = read_ids(in.ids, "--ids", clip->config().vocab, clip->config().context);
        results["ids"] = ids, results["text"] = rows_of(context, clip->embed_text(context, ids));
      }
      if (!in.pixels_file.empty()) {
        const auto pixels = read_pixels(in.pixels_file, clip->config().patches);
        results["image"] = rows_of(context, clip->embed_image(context, pixels));
      }
      return results;
    }
  }
  return {};
}

}  // namespace

void print_encoder_logits(EncoderKind kind, const ForwardOptions& options, const EncoderInputs& inputs,
                          const Output& output) {
  run_encoder(options, [&](Context& context, const EncoderUse& use, Communicator&) {
    const nlohmann::json results = results_of(kind, context, options.model, use, inputs);
    if (!use.mesh->is_driver()) return;
    for (const char* key : {"logits", "text", "image"})
      if (results.contains(key))
        for (const auto& row : results[key])
          output.text(fmt::format("{}", fmt::join(row.get<std::vector<float>>(), " ")));
    output.json(results);
  });
}

}  // namespace weft::app
