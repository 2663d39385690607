// What a program that tests kernels by themselves is told and counts, and how it times one.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>
#include <vector>

#include "heed/base/check.h"

namespace heed::kernels {
namespace {

bool timing = false;
std::string wanted;
int passed = 0, failed = 0;
cudaStream_t stream = nullptr;

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail(what, ": ", cudaGetErrorString(error));
}

// So many runs, as one graph.
template <class Run>
cudaGraphExec_t captured(int count, Run run) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < count; ++i) run();
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  cudaGraphDestroy(graph);
  return exec;
}

// The median of a run in microseconds: a graph of ten runs, 20 times.
template <class Run>
double microseconds(Run run) {
  constexpr int kRuns = 10;
  const cudaGraphExec_t exec = captured(kRuns, run);
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int i = 0; i < 23; ++i) {
    check(cudaEventRecord(begin, stream), "event");
    check(cudaGraphLaunch(exec, stream), "graph");
    check(cudaEventRecord(end, stream), "event");
    check(cudaEventSynchronize(end), "graph");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "event");
    if (i >= 3) times.push_back(ms);
  }
  cudaEventDestroy(begin), cudaEventDestroy(end);
  cudaGraphExecDestroy(exec);
  std::nth_element(times.begin(), times.begin() + 10, times.end());
  return times[10] * 1e3 / kRuns;
}

}  // namespace
}  // namespace heed::kernels
