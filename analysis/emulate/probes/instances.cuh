/* instances.cuh - replaces the generated file of the same name: a probe calls functions of a kernel, and needs no
 * instance of the kernel itself. */
