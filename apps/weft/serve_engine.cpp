// ServeEngine: the cache is sized, adapters and the draft model are opened, then every rank serves.
#include "serve_engine.h"

#include <filesystem>

#include "find_chat_template.h"
#include "kv_dtype.h"
#include "rank_resources.h"
#include "serve_check.h"
#include "weft/base/ceil_div.h"
#include "weft/base/file.h"
#include "weft/comm/single/single.h"
#include "weft/pretrained/bidirectional_model.h"
#include "weft/pretrained/peft.h"
#include "weft/serve/continuous_engine.h"
#include "weft/serve/encoder_engine.h"
#include "weft/text/other_token.h"

namespace weft::app {
namespace {

api::ToolFormat tool_format_of(const EngineOptions& o, const ChatTemplate* chat_template,
                               const Tokenizer& tokenizer) {
  if (!o.tool_format.empty()) {
    if (const auto format = api::parse_tool_format(o.tool_format)) return *format;
    throw UsageError("--tool-format {}: write one of {}", o.tool_format, api::tool_format_names());
  }
  return chat_template ? api::detect_tool_format(*chat_template, &tokenizer) : api::ToolFormat::hermes;
}

api::ReasoningFormat reasoning_format_of(const EngineOptions& o, const ChatTemplate* chat_template,
                                         const Tokenizer& tokenizer, api::ToolFormat tools) {
  using Format = api::ReasoningFormat;
  if (o.reasoning_format == "auto")
    return chat_template ? api::detect_reasoning_format(*chat_template, &tokenizer, tools) : Format::none;
  const auto format = api::parse_reasoning_format(o.reasoning_format);
  if (!format)
    throw UsageError("--reasoning-format {}: write auto, {}", o.reasoning_format, api::reasoning_format_names());
  if (format == Format::harmony && tools != api::ToolFormat::harmony)
    throw UsageError("--reasoning-format harmony: it needs --tool-format harmony, whose parts it is one of");
  return *format;
}

SamplingDefaults sampling_of(const EngineOptions& o, const ModelSource& source) {
  if (o.sampling == "none") return {};
  const SamplingDefaults defaults = source.sampling_defaults();
  try {
    SamplingOptions options;
    apply(defaults, options);
    check_sampling(options);
  } catch (const UsageError& e) {
    throw UsageError("{}: how its files say to sample: {}; --sampling-defaults none leaves it out", source.path(),
                     e.what());
  }
  return defaults;
}

EmbeddingRule embedding_of(const EngineOptions& o, EmbeddingRule rule) {
  if (o.pooling == "model") return rule;
  rule.pooling = parse_pooling("--pooling", o.pooling);
  rule.unknown.clear();
  return rule;
}

std::shared_ptr<const api::Relevance> relevance_of(const EngineOptions& o, const Tokenizer& tokenizer,
                                                   const ScoreRule& scores) {
  if (o.reranker.empty()) return {};
  const size_t labels = scores.labels.size();
  ChatTemplate chat = o.reranker == api::Relevance::kQwen3
                          ? api::Relevance::qwen3()
                          : ChatTemplate(read_file(o.reranker, ChatTemplate::kMostBytes), o.reranker);
  if (labels > 1)
    throw UsageError("--reranker {}: a model that judges pairs has one label, and this one has {}", o.reranker,
                     labels);
  if (labels == 1) return std::make_shared<api::Relevance>(std::move(chat), scores.activation);
  const size_t comma = o.rerank_tokens.find(',');
  if (comma == std::string::npos) throw UsageError("--rerank-tokens {}: write two words, as yes,no", o.rerank_tokens);
  return std::make_shared<api::Relevance>(std::move(chat), tokenizer,
                                          std::string_view(o.rerank_tokens).substr(0, comma),
                                          std::string_view(o.rerank_tokens).substr(comma + 1));
}

// An encoder with one label judges pairs, where its tokenizer says how two texts are put together.
std::shared_ptr<const api::Relevance> relevance_of(const TextEncoderSource& source, const Tokenizer& tokenizer) {
  std::optional<PairSurroundings> around = source.around_pair(tokenizer);
  const ScoreRule& scores = source.score_rule();
  if (scores.labels.size() != 1 || !around) return {};
  return std::make_shared<api::Relevance>(std::move(*around), scores.activation);
}

// Of the folder that was named: the checkpoints in it come and go.
std::string name_of(const EngineOptions& o) {
  if (!o.name.empty()) return o.name;
  return file_name_of(std::filesystem::absolute(o.forward.model).lexically_normal().string());
}

// The draft model, whole on the driver.
class DraftModel {
 public:
  DraftModel(const EngineOptions& o, ForwardModel& model, const ModelSource& source)
      : source_(opened(o.draft)),
        alone_(alone_on(model.context().stream)),
        mesh_(*alone_, {}),
        model_(model.context(), mesh_, *source_, model.dtype(), parse_block_choice(o.forward.quantize)) {
    check_tokenizers(*source.tokenizer(), *source_->tokenizer(), o.draft);
  }
  ForwardModel& model() { return model_; }

 private:
  static std::unique_ptr<ModelSource> opened(const std::string& path) {
    std::unique_ptr<ModelSource> source = open_model(path);
    require_writing(source->config(), "--draft " + path);
    return source;
  }
  static std::unique_ptr<Communicator> alone_on(Stream& stream) {
    auto alone = make_single_communicator();
    alone->use_stream(stream);
    return alone;
  }
  static void check_tokenizers(const Tokenizer& a, const Tokenizer& b, const std::string& path) {
    if (a.vocab_size() != b.vocab_size() || first_other_token(a, b))
      throw UsageError("--draft {}: its tokens are not those of the model: name a smaller model of the same family",
                       path);
  }

  std::unique_ptr<ModelSource> source_;
  const std::unique_ptr<Communicator> alone_;
  const Mesh mesh_;
  ForwardModel model_;
};

// Of a token, of the model on all ranks and of its draft.
int64_t cache_bytes(const ContinuousOptions& o, const ForwardModel& model, const ForwardModel* draft) {
  const auto of = [&](const ForwardModel& m) {
    return cache_bytes_of_token(m.config(), m.mesh().shape(), kv_format_of(o, m));
  };
  return of(model) + (draft ? of(*draft) : 0);
}

// How many blocks the cache has on all ranks of the job alike: what was asked for, or half of the free memory where
// that is less than whole contexts for all that run. And how many may run, where each has states in the cache, too.
void choose_cache(const EngineOptions& o, ForwardModel& model, Communicator& job, ContinuousOptions& options) {
  const ModelConfig& config = model.config();
  const int64_t block_tokens = options.block_tokens,
                block = block_tokens * cache_bytes(options, model, options.draft);
  const int64_t state =
      state_bytes_of_sequence(model) + (options.draft ? state_bytes_of_sequence(*options.draft) : 0);
  int64_t bytes = options.kv_bytes;
  {
    const Patience while_others_read_weights(job);
    job.barrier();
  }
  if (bytes == 0) {
    const int64_t of_each = most_states_of_each(options.max_draft_tokens, options.keeps_prefixes);
    const int64_t whole = (ceil_div(config.context, block_tokens) * block + of_each * state) * options.max_running;
    const int ranks = model.mesh().world().size();
    const int64_t free = available_to_replica(o, ranks, o.forward.replica * ranks);
    bytes = std::min(whole, free / (2 * o.num_models));
  }
  const Tensor chosen = model.context().stream.host_memory().empty(DType::i64, {3});
  int64_t &running = chosen.data<int64_t>()[0], &kept = chosen.data<int64_t>()[1],
          &blocks = chosen.data<int64_t>()[2];
  const StateShares shares =
      share_states(state, bytes, options.max_running, options.max_draft_tokens, options.keeps_prefixes);
  running = shares.running, kept = shares.kept;
  blocks = (bytes - shares.all() * state) / block;
  job.all_reduce(chosen, Reduction::min);
  if (blocks < 1)
    throw UsageError("--kv-cache {}: a block of {} tokens takes {}{}; give more or lower --block-tokens",
                     human_bytes(uint64_t(bytes)), block_tokens, human_bytes(uint64_t(block)),
                     state > 0 ? fmt::format(", the states of a request {}", human_bytes(uint64_t(state))) : "");
  options.max_running = running, options.kept_states = kept, options.kv_blocks = blocks;
}

void print_cache(const EngineOptions& o, const Engine& engine, const ForwardModel& model, const RowFormat& format,
                 int64_t bytes_of_token, int64_t kept_states) {
  const EngineStats stats = engine.stats();
  const int64_t tokens = stats.kv_blocks * stats.kv_block_tokens, bytes = tokens * bytes_of_token;
  const std::string draft_tokens =
      o.engine.max_draft_tokens == 0
          ? std::string()
          : fmt::format(", up to {} drafted{}", o.engine.max_draft_tokens, o.draft.empty() ? "" : " by " + o.draft);
  const int cp = model.mesh().shape().cp;
  const int64_t state = state_bytes_of_sequence(model), states = engine.limits().max_running + kept_states;
  const std::string in_states =
      state == 0 ? std::string() : fmt::format(" and {} states in {}", states, human_bytes(uint64_t(states * state)));
  const std::string spread = cp == 1 ? std::string() : fmt::format(", {} on each of {} ranks", tokens / cp, cp);
  o.output.text(
      fmt::format("weft: a cache of {} blocks of {} tokens: {} tokens{}, {} in {}{}; up to {} requests at once, {} "
                  "tokens a step{}{}",
                  stats.kv_blocks, stats.kv_block_tokens, tokens, spread, human_bytes(uint64_t(bytes)),
                  kv_dtype_name(format), in_states, engine.limits().max_running, o.engine.tokens_per_step,
                  o.without_prefixes ? ", prefixes are not kept" : "", draft_tokens));
  o.output.json({{"event", "cache"},
                 {"kv_blocks", stats.kv_blocks},
                 {"kv_tokens", tokens},
                 {"kv_tokens_of_rank", tokens / cp},
                 {"kv_bytes", bytes},
                 {"kv_dtype", kv_dtype_name(format)}});
}

void add_adapters(const EngineOptions& o, ForwardModel& model, const ModelSource& source,
                  ContinuousOptions& options) {
  if (o.adapters.empty() && o.adapter_folder.empty()) return;
  options.load_adapter = [&](const std::string& folder) {
    return load_lora_set(model.context(), source, model.part(), model.dtype(), folder);
  };
  for (const std::string& text : o.adapters) {
    options.adapters.push_back(split_name("--lora", text));
    if (options.adapters.back().first == name_of(o))
      throw UsageError("--lora {}: the model itself is called so: give the adapter another name", text);
  }
}

// The engine of this rank, to its end; `print` says what the job's first driver tells of it.
void drive(MeshEngine& engine, const Mesh& mesh, Communicator& job, const OnDriver& on_driver,
           const std::function<void()>& print) {
  const int ranks = mesh.world().size();
  Driver driver{.engine = engine,
                .place = {.replica = job.rank() / ranks,
                          .replicas = job.size() / ranks,
                          .is_driver = engine.is_driver(),
                          .front = mesh.shape().driver()},
                .is_alone = ranks == 1,
                .sockets = {}};
  if (job.size() > ranks) driver.sockets = remote::meet(job, driver.place);
  if (!engine.is_driver()) return engine.run();
  if (driver.place.replica == 0) print();
  on_driver(driver);
}

EncoderOptions encoder_options(const EngineOptions& o, int64_t context) {
  return {.context = context,
          .tokens_per_step = o.engine.tokens_per_step,
          .max_running = o.engine.max_running,
          .max_waiting = o.engine.max_waiting};
}

void drive_encoder(const EngineOptions& o, TextEncoder& model, Context& context, const Mesh& mesh,
                   const EncoderOptions& options, Communicator& job, const OnDriver& on_driver) {
  EncoderEngine engine(model, context, mesh, options);
  drive(engine, mesh, job, on_driver, [&] {
    o.output.text(fmt::format("weft: an encoder: up to {} texts and {} tokens a step", options.max_running,
                              options.tokens_per_step));
  });
}

void serve_on_rank(const EngineOptions& o, ForwardModel& model, const ModelSource& source, Communicator& job,
                   const OnDriver& on_driver) {
  if (model.config().bidirectional) {
    BidirectionalModel both_ways(model);
    return drive_encoder(o, both_ways, model.context(), model.mesh(), encoder_options(o, model.config().context), job,
                         on_driver);
  }
  ContinuousOptions options = o.engine;
  std::unique_ptr<DraftModel> draft;
  if (o.has_draft_model() && model.is_driver()) {
    draft = std::make_unique<DraftModel>(o, model, source);
    options.draft = &draft->model();
  }
  options.keeps_prefixes = !o.without_prefixes;
  choose_cache(o, model, job, options);
  add_adapters(o, model, source, options);
  ContinuousEngine engine(model, options);
  drive(engine, model.mesh(), job, on_driver, [&] {
    print_cache(o, engine, model, kv_format_of(options, model), cache_bytes(options, model, options.draft),
                options.kept_states.value_or(0));
  });
}

// Of options that mean nothing to an encoder.
void check_encoder_options(const EngineOptions& o) {
  const auto refuse = [&](bool is_given, const char* option, const char* what) {
    if (is_given) throw UsageError("{}: {} is an encoder, which {}: leave it out", option, o.forward.model, what);
  };
  refuse(!o.draft.empty(), "--draft", "writes no texts");
  refuse(!o.adapters.empty(), "--lora", "runs without adapters");
  refuse(!o.adapter_folder.empty(), "--lora-dir", "runs without adapters");
  refuse(o.device_map != "near", "--device-map", "is held in memory as a whole");
}

// Its options were checked where its texts were opened.
void serve_encoder(const EngineOptions& o, const OnDriver& on_driver) {
  const TextEncoderSource source(o.forward.model);
  const EncoderOptions options = encoder_options(o, source.context());
  ForwardOptions forward = o.forward;
  if (forward.mesh == "auto") forward.mesh.clear();  // encoders are small
  run_encoder(
      forward,
      [&](Context& context, const EncoderUse& use, Communicator& job) {
        const std::unique_ptr<Bert> model = open_bert(context, source.path(), use);
        drive_encoder(o, *model, context, *use.mesh, options, job, on_driver);
      },
      source.dtype());
}

}  // namespace

std::pair<std::string, std::string> split_name(const char* option, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == text.size())
    throw UsageError("{} {}: write NAME=FOLDER", option, text);
  return {text.substr(0, equals), text.substr(equals + 1)};
}

ModelText::ModelText(const EngineOptions& o, const ModelSource& source) : tokenizer_(source.tokenizer()) {
  if (source.config().bidirectional) check_encoder_options(o);
  if (auto found = find_chat_template(o.template_file, source, *tokenizer_))
    model_.chat_template = std::make_shared<ChatTemplate>(std::move(*found));
  model_.name = name_of(o);
  model_.tokenizer = tokenizer_.get();
  model_.tool_format = tool_format_of(o, model_.chat_template.get(), *tokenizer_);
  model_.reasoning_format = reasoning_format_of(o, model_.chat_template.get(), *tokenizer_, model_.tool_format);
  model_.end_tokens = stop_tokens(source, *tokenizer_);
  model_.sampling = sampling_of(o, source);
  set_vectors(o, source.embedding_rule(), source.config().hidden);
  model_.scores = source.score_rule();
  model_.relevance = relevance_of(o, *tokenizer_, model_.scores);
  constraints_ =
      std::make_unique<constrain::ConstraintFactory>(*tokenizer_, source.config().vocab, model_.end_tokens);
  model_.constraints = constraints_.get();
  model_.adapter_folder = o.adapter_folder;
  model_.fill_in_middle = api::detect_fill_in_middle(*tokenizer_);
}

ModelText::ModelText(const EngineOptions& o, const TextEncoderSource& source) : tokenizer_(source.tokenizer()) {
  check_encoder_options(o);
  model_.name = name_of(o);
  model_.tokenizer = tokenizer_.get();
  set_vectors(o, source.embedding_rule(), source.config().encoder.hidden);
  model_.scores = source.score_rule();
  model_.relevance = relevance_of(source, *tokenizer_);
}

void ModelText::set_vectors(const EngineOptions& o, EmbeddingRule rule, int64_t width) {
  model_.embedding = embedding_of(o, std::move(rule));
  if (const auto& layers = model_.embedding.dense; !layers.empty())
    model_.dense = std::make_shared<DenseLayers>(layers, width);
}

api::ServedModel ModelText::served_by(Engine& engine) {
  api::ServedModel model = model_;
  model.engine = &engine;
  return model;
}

void require_own_draft(const ModelConfig& config, const std::string& model) {
  if (config.mtp_layers == 0)
    throw UsageError(
        "--draft {}: {} has no part that predicts a token further on, or none that weft knows: name a smaller model "
        "with the same tokens, or leave --draft out",
        kOwnDraft, model);
}

bool is_text_encoder(const std::string& model) { return encoder_kind(model) == EncoderKind::bert; }

void run_engine(const EngineOptions& options, const OnDriver& on_driver) {
  if (is_text_encoder(options.forward.model)) return serve_encoder(options, on_driver);
  if (!options.draft.empty() && options.engine.max_draft_tokens == 0)
    throw UsageError("--draft {}: say how many tokens it drafts, as in --speculate 4", options.draft);
  EngineOptions chosen = options;
  chosen.forward.writes_texts = false;  // or scores them
  if (options.drafts_itself()) chosen.forward.mtp = WithMtp::yes;
  run_forward(
      chosen.forward,
      [&](ForwardModel& model, const ModelSource& source, Communicator& job) {
        serve_on_rank(chosen, model, source, job, on_driver);
      },
      [&](const ModelSource& source, MeshShape& mesh, FarLayers& far) {
        if (source.config().bidirectional) {  // which keeps no keys and values
          if (options.forward.mesh == "auto") mesh = {};
          return;
        }
        if (options.drafts_itself()) require_own_draft(source.config(), source.path());
        if (options.forward.mesh == "auto") mesh = choose_mesh(options, source);
        const MemoryChoice choice = choose_memory(options, source, mesh);
        chosen.engine.kv_bytes = choice.kv_bytes;
        far = {.count = choice.far_layers, .folder = options.far_folder};
      });
}

void EngineOptions::add_to(CLI::App& command) {
  forward.dtype = "auto";
  forward.add_to(command);
  const auto add = [&](const char* option, int64_t& value, int64_t least, const char* what) {
    command.add_option(option, value, what)->capture_default_str()->check(CLI::Range(least, int64_t(1) << 20));
  };
  command.add_option("--served-model-name", name, "What clients call the model; else its folder's name");
  command.add_option("--chat-template", template_file, "A file with a chat template; else the model's own");
  command.add_option(
      "--tool-format", tool_format,
      "How the model writes tool calls: " + api::tool_format_names() + "; else as its chat template does");
  command
      .add_option("--reasoning-format", reasoning_format,
                  "Between which marks the model thinks, to be told apart from what it answers: auto, as its chat "
                  "template does, " +
                      api::reasoning_format_names())
      ->capture_default_str();
  command
      .add_option("--sampling-defaults", sampling,
                  "Where a request says nothing: model, as the model's files say; or none, as OpenAI's")
      ->capture_default_str()
      ->check(CLI::IsMember({"model", "none"}));
  command
      .add_option(
          "--pooling", pooling,
          "What the vector of a text is, of its tokens' hidden states: last, first, mean or weighted_mean; model: "
          "as the model's files say, or else last, and of an encoder mean")
      ->capture_default_str()
      ->check(CLI::IsMember({"model", "last", "first", "mean", "weighted_mean"}));
  command.add_option("--reranker", reranker,
                     "The model says yes or no to pairs of a query and a document, by the probability of which "
                     "/v1/rerank and /v1/score judge them: qwen3, or a Jinja file that writes such a pair");
  command.add_option("--rerank-tokens", rerank_tokens, "The two words, each a token")->capture_default_str();
  command
      .add_option("--lora", adapters, "NAME=FOLDER, several times: adapters (PEFT) that requests name as their model")
      ->allow_extra_args(false);
  command.add_option("--lora-dir", adapter_folder,
                     "A folder with folders of adapters, which requests may load and unload by their names");
  add("--max-loras", engine.most_adapters, 0, "Adapters at once; requests load no more");
  command
      .add_option("--kv-cache", engine.kv_bytes,
                  "Memory for keys and values over all ranks, as in 2GiB; else up to half of what is free")
      ->transform(CLI::AsSizeValue(true));
  command
      .add_option("--memory-limit", memory_limit,
                  "Memory to use, as in 16GiB: of each device, or of this machine; else what is free")
      ->transform(CLI::AsSizeValue(true));
  command
      .add_option(
          "--device-map", device_map,
          "near, all weights in memory; or auto, layers that do not fit are read anew for each step: from the "
          "host's memory to a device, from a file on a CPU")
      ->capture_default_str()
      ->check(CLI::IsMember({"near", "auto"}));
  command.add_option("--far-dir", far_folder, "The folder for that file, which nobody else sees")
      ->capture_default_str();
  add_kv_dtype(command, engine.kv_format);
  add("--block-tokens", engine.block_tokens, 1, "Tokens of a block of that memory");
  add("--max-running", engine.max_running, 1, "Requests in one step; each then has at least a token of it");
  add("--tokens-per-step", engine.tokens_per_step, 1, "Tokens of one step, of prompts and answers together");
  add("--max-waiting", engine.max_waiting, 0, "Requests in the queue; one more gets 429");
  add("--speculate", engine.max_draft_tokens, 0,
      "Tokens of an answer to draft in one step, from what its text said before; answers stay what they are");
  command.add_option("--draft", draft,
                     "A smaller model with the same tokens, which drafts them instead; or mtp, the model's own part "
                     "that predicts a token further on");
  command.add_flag("--no-prefix-cache", without_prefixes, "Compute prompts that begin alike each for itself");
  output.add_option(command);
}

}  // namespace weft::app
