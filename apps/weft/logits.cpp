// weft logits: the logits of every position, for comparing with another implementation.
#include "command.h"
#include "encoder_logits.h"
#include "forward_ranks.h"
#include "weft/base/file.h"
#include "weft/pretrained/bidirectional_model.h"
#include "weft/tensor/host_access.h"

namespace weft::app {
namespace {

struct LogitsCommand {
  ForwardOptions forward;
  std::string ids, ids_file, decoder_ids, pixels_file;
  Output output;
};

void print(const Output& output, const std::vector<int32_t>& ids, const Tensor& logits) {
  nlohmann::json rows = nlohmann::json::array();
  for (int64_t t = 0; t < logits.dim(0); ++t) {
    const std::span<const float> row(logits.data<float>() + t * logits.dim(1), size_t(logits.dim(1)));
    if (output.is_json())
      rows.push_back(row);
    else
      output.text(fmt::format("{}", fmt::join(row, " ")));
  }
  output.json({{"ids", ids}, {"logits", rows}});
}

void logits(const LogitsCommand& o) {
  constexpr uint64_t kMostBytes = uint64_t(64) << 20;
  const bool is_file = !o.ids_file.empty();
  const std::string text = is_file ? read_to_end(o.ids_file, kMostBytes) : o.ids;
  if (const auto kind = encoder_kind(o.forward.model)) {
    return print_encoder_logits(*kind, o.forward,
                                {.ids = text, .decoder_ids = o.decoder_ids, .pixels_file = o.pixels_file}, o.output);
  }
  ForwardOptions forward = o.forward;
  forward.writes_texts = false;
  const auto print_here = [&](ForwardModel& model, const std::vector<int32_t>& ids, const Tensor& result) {
    if (model.is_driver()) print(o.output, ids, on_host(model.context().stream, result));
  };
  run_forward(forward, [&](ForwardModel& model, const ModelSource&, Communicator&) {
    const ModelConfig& c = model.config();
    const std::vector<int32_t> ids = parse_ids(text, is_file ? "--ids-file" : "--ids", c.vocab);
    if (ids.empty()) throw UsageError("there are no tokens: write --ids 1,2,3, or name a file of them by --ids-file");
    if (int64_t(ids.size()) > c.context)
      throw UsageError("{} tokens were given, and the model's context is {}: give fewer", ids.size(), c.context);
    if (c.bidirectional) {
      BidirectionalModel both_ways(model);
      TextRows rows = both_ways.no_texts();
      rows.add(ids);
      return print_here(model, ids, both_ways.logits(rows));
    }
    std::vector<int32_t> positions(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) positions[i] = int32_t(i);
    const AttentionSpan whole{.q_end = int32_t(ids.size()), .k_end = int32_t(ids.size())};
    const TokenRun run{.end = int32_t(ids.size())};
    const Pass pass{.ids = ids.data(),
                    .num_tokens = int64_t(ids.size()),
                    .attention = {.positions = positions.data(), .spans = &whole, .num_spans = 1},
                    .runs = {&run, 1}};
    print_here(model, ids, model.logits(pass, 0, pass.num_tokens));
  });
}

}  // namespace

void add_logits(CLI::App& program) {
  const auto o = std::make_shared<LogitsCommand>();
  CLI::App* c =
      program.add_subcommand("logits", "Logits of every position, for comparing with another implementation");
  o->forward.add_to(*c);
  auto* ids = c->add_option("--ids", o->ids, "Tokens, as in 1,2,3");
  c->add_option("--ids-file", o->ids_file, "A file of tokens")->excludes(ids);
  c->add_option("--decoder-ids", o->decoder_ids, "Of a model with an encoder: the text that is written");
  c->add_option("--pixels-file", o->pixels_file, "Of a model of images: numbers as JSON, [channels, rows, columns]");
  o->output.add_option(*c);
  c->footer(
      "Example: weft logits models/llama --ids 1,15043,29892 --json\n         weft logits models/flan-t5 --ids 3,9,1 "
      "--decoder-ids 0,7");
  c->callback([o] { logits(*o); });
}

}  // namespace weft::app
