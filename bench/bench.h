// The yardstick: rows of work, ours beside a peer's and beside what the machine can do, in one run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/peer.h"

namespace heed::bench {

// What this machine can do, measured: the ceiling that shares of the peak refer to.
struct Machine {
  double flops = 0;      // multiply-adds in f32 of all threads, counted as two, a second
  double int8 = 0;       // the same of bytes into whole numbers, by VNNI; 0 where there is none
  double bandwidth = 0;  // bytes read from memory by all threads, a second
  double checksum = 0;   // of what was computed and read
  std::string target;    // the instruction set in use
};
Machine measure_machine(int threads);

// A piece of work, made ready; calling it is one iteration.
struct Job {
  std::string name;  // "op/softmax", "train/transformer"
  Work work;
  double flops = 0, bytes = 0;  // of one iteration: what the floor is made from
  double int8_operations = 0;   // the same of bytes
  double tokens = 0;            // of the target, where they are counted
  Work peer = {};               // where it is not peer_work()'s
};

// All rows, by name; a job is made only when it is its turn, since some hold much memory.
struct Row {
  std::string name;
  std::function<Job()> make;
};
std::vector<Row> attention_rows();
std::vector<Row> op_rows();
std::vector<Row> search_rows();
std::vector<Row> inference_rows();  // of the program that has tokenizers
std::vector<Row> train_rows();

// The most bytes held at a time: by the Transformer's step of train/transformer; by additive
// attention of 512 queries and keys, forward and backward, beside its inputs.
int64_t transformer_peak_bytes();
int64_t additive_peak_bytes();

// On the GPU, attention alone and whole training steps; measured where Device::cuda is in use.
struct CudaResult {
  double seconds = 0;
  double words = 0;          // tokens of the target, in a step
  double flops = 0;          // where they are counted
  double megabytes = 0;      // beside inputs and parameters, at most
  double gradient_norm = 0;  // of a step: it is finite
};
struct CudaRow {
  std::string name;
  std::function<CudaResult()> measure;
};
std::vector<CudaRow> cuda_rows();

struct Result {
  std::string name;
  int threads = 1;
  double ours = 0;             // seconds an iteration, the best of all rounds
  std::optional<double> peer;  // the same of the peer
  double peak_share = 0;       // ours as a share of the machine's peak, by the nearer ceiling
  double tokens = 0;           // of an iteration, where they are counted
};

}  // namespace heed::bench
