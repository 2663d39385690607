#include <cstdio>

extern "C" double softmax_of_first(double a, double b);

int main() { std::printf("%.3f\n", softmax_of_first(1, 1)); }
