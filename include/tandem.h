#pragma once
/// Tandem for programs that build and train models, in namespace tandem: tensors, functions, modules, data,
/// training steps, training runs and weights. <tandem/engine.h> declares the engine that runs them.

// Tensors and functions on them
#include <tandem/autograd/gradient.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/team.h>
#include <tandem/core/graph/names.h>
#include <tandem/core/graph/scope.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/attention.h>
#include <tandem/ops/conv.h>
#include <tandem/ops/eager.h>
#include <tandem/ops/group_norm.h>
#include <tandem/ops/embedding_bag.h>
#include <tandem/ops/index.h>
#include <tandem/ops/init.h>
#include <tandem/ops/interpolate.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/lstm.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/norm.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/pool.h>
#include <tandem/ops/random.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>
#include <tandem/ops/update.h>

// Modules, networks and their weights
#include <tandem/nn/attention_layers.h>
#include <tandem/nn/containers.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/models/bert.h>
#include <tandem/nn/models/convnet.h>
#include <tandem/nn/models/deep_resnet.h>
#include <tandem/nn/models/dlrm.h>
#include <tandem/nn/models/gpt2.h>
#include <tandem/nn/models/inception_v4.h>
#include <tandem/nn/models/mobilenet_v3.h>
#include <tandem/nn/models/mlp.h>
#include <tandem/nn/models/network_config.h>
#include <tandem/nn/models/networks.h>
#include <tandem/nn/models/residual_lstm_net.h>
#include <tandem/nn/models/resnet.h>
#include <tandem/nn/models/snn.h>
#include <tandem/nn/models/transformer.h>
#include <tandem/nn/models/vgg.h>
#include <tandem/nn/models/vit.h>
#include <tandem/nn/models/whole_networks.h>
#include <tandem/nn/models/xception.h>
#include <tandem/nn/module.h>
#include <tandem/nn/pool_layers.h>
#include <tandem/nn/recurrent_layers.h>
#include <tandem/nn/summary.h>
#include <tandem/nn/weights.h>

// Data
#include <tandem/datasets/cifar.h>
#include <tandem/datasets/draw.h>
#include <tandem/datasets/drawn_dataset.h>
#include <tandem/datasets/loader.h>
#include <tandem/datasets/mapped_dataset.h>
#include <tandem/datasets/memory_dataset.h>
#include <tandem/datasets/mixup_dataset.h>
#include <tandem/datasets/shuffled_dataset.h>
#include <tandem/datasets/skipping_dataset.h>
#include <tandem/datasets/subset_dataset.h>
#include <tandem/datasets/transforms/cutout.h>
#include <tandem/datasets/transforms/normalize.h>
#include <tandem/datasets/transforms/random_crop.h>
#include <tandem/datasets/transforms/random_flip.h>

// Training
#include <tandem/core/graph/state_dict.h>
#include <tandem/plan/strategy.h>
#include <tandem/train/checkpoint_store.h>
#include <tandem/train/checkpoint_writer.h>
#include <tandem/train/event_file.h>
#include <tandem/train/lr_schedule.h>
#include <tandem/train/train_checkpoint.h>
#include <tandem/train/train_step.h>
#include <tandem/train/trainer.h>
