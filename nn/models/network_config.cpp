#include <tandem/nn/models/network_config.h>

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/nn/module.h>

namespace tandem::nn {
using engine::JsonInput;
namespace {

constexpr std::int64_t kMost = 1 << 24;  // of any size

std::int64_t size_of(const JsonInput& config, const char* key, std::int64_t otherwise) {
  return config[key].integer<std::int64_t>(otherwise, 1, kMost);
}
int count_of(const JsonInput& config, const char* key, int otherwise) {
  return config[key].integer<int>(otherwise, 1, 10'000);
}
double dropout_of(const JsonInput& config, const char* key, double otherwise) {
  return config[key].number(otherwise, 0, 0.999);
}

// Throws Error unless the value is absent or the only one that the network has.
void require_text(const JsonInput& config, const char* key, const char* only) {
  if (config[key].present()) config[key].one_of({only});
}
void require_number(const JsonInput& config, const char* key, double only) {
  config[key].number(only, only, only);
}

// Throws Error if the weights of so many blocks exceed the memory: before the first is made.
void require_memory_for(const char* network, int depth, std::int64_t width, std::int64_t hidden) {
  const double of_block = static_cast<double>(4 * width + 2 * hidden) * static_cast<double>(width);
  engine::require_memory(fmt::format("a {} of {} blocks that are {} wide", network, depth, width),
                         depth * of_block * static_cast<double>(tandem::size_of(default_dtype())));
}

// The one of two names of a value that is given.
const char* given_of(const JsonInput& config, const char* name, const char* other) {
  if (!config[other].present()) return name;
  config.renamed(name, other);  // throws if both are
  return other;
}

// Whether transformers' class of the config is one of these.
bool is_of_class(const JsonInput& config, bool (*is_one)(const std::string& name)) {
  return config["architectures"].present() && std::ranges::any_of(config["architectures"].texts(), is_one);
}

}  // namespace

Gpt2Options gpt2_options(const JsonInput& config) {
  require_text(config, "model_type", "gpt2");
  require_text(config, "activation_function", "gelu_new");
  require_number(config, "layer_norm_epsilon", 1e-5);
  config["scale_attn_weights"].require_flag(true);
  config["scale_attn_by_inverse_layer_idx"].require_flag(false);
  config["add_cross_attention"].require_flag(false);
  Gpt2Options o;
  o.words = size_of(config, "vocab_size", o.words);
  // transformers takes both names of a size.
  o.positions = size_of(config, given_of(config, "n_positions", "max_position_embeddings"), o.positions);
  o.width = size_of(config, given_of(config, "n_embd", "hidden_size"), o.width);
  o.depth = count_of(config, given_of(config, "n_layer", "num_hidden_layers"), o.depth);
  o.heads = count_of(config, given_of(config, "n_head", "num_attention_heads"), o.heads);
  if (!config["n_inner"].is_null()) require_number(config, "n_inner", static_cast<double>(4 * o.width));
  o.dropout = dropout_of(config, "resid_pdrop", o.dropout);
  o.embedding_dropout = dropout_of(config, "embd_pdrop", o.embedding_dropout);
  o.attention_dropout = dropout_of(config, "attn_pdrop", o.attention_dropout);
  require_memory_for("GPT-2", o.depth, o.width, 4 * o.width);
  return o;
}

BertOptions bert_options(const JsonInput& config) {
  require_text(config, "model_type", "bert");
  require_text(config, "hidden_act", "gelu");
  require_number(config, "layer_norm_eps", 1e-12);
  config["is_decoder"].require_flag(false);
  config["add_cross_attention"].require_flag(false);
  BertOptions o;
  o.words = size_of(config, "vocab_size", o.words);
  o.positions = size_of(config, "max_position_embeddings", o.positions);
  o.kinds = size_of(config, "type_vocab_size", o.kinds);
  const JsonInput padding = config["pad_token_id"];
  o.padding = padding.present() && padding.is_null() ? -1 : padding.integer<std::int64_t>(0, 0, o.words - 1);
  o.width = size_of(config, "hidden_size", o.width);
  o.hidden = size_of(config, "intermediate_size", o.hidden);
  o.depth = count_of(config, "num_hidden_layers", o.depth);
  o.heads = count_of(config, "num_attention_heads", o.heads);
  o.dropout = dropout_of(config, "hidden_dropout_prob", o.dropout);
  o.attention_dropout = dropout_of(config, "attention_probs_dropout_prob", o.attention_dropout);
  o.head_dropout = o.dropout;
  require_memory_for("BERT", o.depth, o.width, o.hidden);
  if (!config["classifier_dropout"].is_null())
    o.head_dropout = dropout_of(config, "classifier_dropout", o.dropout);
  return o;
}

VitOptions vit_options(const JsonInput& config, const VitOptions& otherwise) {
  require_text(config, "model_type", "vit");
  require_text(config, "hidden_act", "gelu");
  config["qkv_bias"].require_flag(true);
  VitOptions o = otherwise;
  o.image = size_of(config, "image_size", o.image);
  o.patch = size_of(config, "patch_size", o.patch);
  o.channels = size_of(config, "num_channels", o.channels);
  o.classes = class_count(config);
  o.width = size_of(config, "hidden_size", o.width);
  o.hidden = size_of(config, "intermediate_size", o.hidden);
  o.depth = count_of(config, "num_hidden_layers", o.depth);
  o.heads = count_of(config, "num_attention_heads", o.heads);
  o.epsilon = config["layer_norm_eps"].number(1e-12, 0, 1);
  o.dropout = dropout_of(config, "hidden_dropout_prob", o.dropout);
  o.attention_dropout = dropout_of(config, "attention_probs_dropout_prob", o.attention_dropout);
  require_memory_for("ViT", o.depth, o.width, o.hidden);
  return o;
}

bool is_of_transformers(const JsonInput& config) { return config["model_type"].present(); }

// For other problems, and for one label, transformers has another loss.
std::int64_t class_count(const JsonInput& config) {
  if (!config["problem_type"].is_null()) require_text(config, "problem_type", "single_label_classification");
  const std::int64_t labels = config["num_labels"].present() ? size_of(config, "num_labels", 2)
                              : config["id2label"].present() ? std::ssize(config["id2label"].entries())
                                                             : 2;
  if (labels < 2)
    throw Error(fmt::format(
        "the configuration has {}, so its loss is a regression's; Tandem's networks tell 2 classes or more apart",
        counted(labels, "label")));
  return labels;
}

bool is_classifier(const JsonInput& config) {
  return is_of_class(config, [](const std::string& name) {
    return name.ends_with("ForSequenceClassification") || name.ends_with("ForImageClassification");
  });
}

bool lacks_head(const JsonInput& config) {
  return is_of_class(config, [](const std::string& name) { return name == "BertModel"; });
}

}  // namespace tandem::nn
