// A board between a host's memory and a driver, both made of plain Verilog 2001: runs in Verilator and in Icarus.
//
// In: what a driver writes to load the machine (../images/load.hex) and to train (writes.hex), pages (pages.hex), words
// that the board must then hold (expected.hex).
// Out: a line that starts with PASS or FAIL. STALL > 0 makes the page bus pause in STALL of 256 cycles, at random.
`timescale 1ns / 1ps

module testbench;
  parameter STALL = 0;
  localparam DATA_BITS = @DATA_BITS@;
  localparam BEATS = @BEATS@;            // of all pages
  localparam LOADS = @LOADS@;
  localparam WRITES = @WRITES@;
  localparam EXPECTED = @EXPECTED@;
  localparam PATIENCE = @PATIENCE@;      // cycles
  localparam LATENCY = @LATENCY@;        // cycles from an address to its first beat
  localparam [63:0] BASE = 64'h@BASE@;
  localparam [25:0] INTERRUPT = 26'h@INTERRUPT@;

  reg clk = 0, rst = 1;
  always #5 clk = ~clk;

  // what is written and read at the control bus: byte address in the upper half, word in the lower
  reg [63:0] loads [0:LOADS - 1];
  reg [63:0] writes [0:WRITES - 1];
  reg [63:0] expected [0:EXPECTED - 1];
  reg [DATA_BITS - 1:0] pages [0:BEATS - 1];

  reg [25:0] awaddr = 0, araddr = 0;
  reg awvalid = 0, wvalid = 0, bready = 0, arvalid = 0, rready = 0;
  reg [31:0] wdata = 0;
  wire awready, wready, bvalid, arready, rvalid;
  wire [1:0] bresp, rresp;
  wire [31:0] rdata;

  wire [63:0] page_address;
  wire [7:0] page_length;
  wire page_asked;
  wire page_taken, page_ready;
  reg page_valid = 0, page_last = 0;
  reg [DATA_BITS - 1:0] page_data = 0;
  wire interrupt;
  // verilator lint_off UNUSEDSIGNAL
  wire page_arid, page_lock;
  wire [2:0] page_size, page_prot;
  wire [1:0] page_burst;
  wire [3:0] page_cache;
  // verilator lint_on UNUSEDSIGNAL

  dana_board board (
    .clk(clk), .rst(rst), .irq(interrupt),
    .s_axil_awaddr(awaddr), .s_axil_awprot(3'b000), .s_axil_awvalid(awvalid), .s_axil_awready(awready),
    .s_axil_wdata(wdata), .s_axil_wstrb(4'hf), .s_axil_wvalid(wvalid), .s_axil_wready(wready),
    .s_axil_bresp(bresp), .s_axil_bvalid(bvalid), .s_axil_bready(bready),
    .s_axil_araddr(araddr), .s_axil_arprot(3'b000), .s_axil_arvalid(arvalid), .s_axil_arready(arready),
    .s_axil_rdata(rdata), .s_axil_rresp(rresp), .s_axil_rvalid(rvalid), .s_axil_rready(rready),
    .m_axi_arid(page_arid), .m_axi_araddr(page_address), .m_axi_arlen(page_length), .m_axi_arsize(page_size),
    .m_axi_arburst(page_burst), .m_axi_arlock(page_lock), .m_axi_arcache(page_cache), .m_axi_arprot(page_prot),
    .m_axi_arvalid(page_asked), .m_axi_arready(page_ready),
    .m_axi_rid(1'b0), .m_axi_rdata(page_data), .m_axi_rresp(2'b00), .m_axi_rlast(page_last),
    .m_axi_rvalid(page_valid), .m_axi_rready(page_taken)
  );

  // ---- host memory: one burst at a time
  reg serving = 0;
  assign page_ready = ~serving;
  reg [31:0] beat = 0;
  reg [8:0] left = 0;
  reg [15:0] delay = 0;
  reg [31:0] noise = 32'h2545f491;
  wire pause = {1'b0, noise[7:0]} < STALL;

  always @(posedge clk) begin
    noise <= {noise[30:0], noise[31] ^ noise[21] ^ noise[1] ^ noise[0]};
    if (page_valid & page_taken) page_valid <= 0;
    if (rst) begin
      serving <= 0;
      page_valid <= 0;
    end else if (~serving) begin
      if (page_asked) begin
        serving <= 1;
        beat <= (page_address - BASE) / (DATA_BITS / 8);
        left <= {1'b0, page_length} + 9'd1;
        delay <= LATENCY;
      end
    end else if (delay != 0) begin
      delay <= delay - 16'd1;
    end else if (left == 0) begin
      if (~page_valid | page_taken) serving <= 0;
    end else if ((~page_valid | page_taken) & ~pause) begin
      page_valid <= 1;
      page_data <= pages[beat];
      page_last <= left == 9'd1;
      beat <= beat + 1;
      left <= left - 9'd1;
    end
  end

  // ---- driver
  integer errors = 0;
  integer k;
  integer cycles = 0;
  reg [31:0] word;

  // The driver acts at falling edges, halfway between those at which the board does. What it then sees of the board
  // (ready, valid) is what holds at the next rising edge.
  task write(input [25:0] address, input [31:0] value);
    begin
      awaddr = address;
      wdata = value;
      awvalid = 1;
      wvalid = 1;
      while (!(awready && wready)) @(negedge clk);
      @(negedge clk);
      awvalid = 0;
      wvalid = 0;
      bready = 1;
      while (!bvalid) @(negedge clk);
      if (bresp != 2'b00) begin
        $display("a write to %h is refused", address);
        errors = errors + 1;
      end
      @(negedge clk);
      bready = 0;
    end
  endtask

  task read(input [25:0] address, output [31:0] value);
    begin
      araddr = address;
      arvalid = 1;
      while (!arready) @(negedge clk);
      @(negedge clk);
      arvalid = 0;
      rready = 1;
      while (!rvalid) @(negedge clk);
      value = rdata;
      if (rresp != 2'b00) begin
        $display("a read of %h is refused", address);
        errors = errors + 1;
      end
      @(negedge clk);
      rready = 0;
    end
  endtask

  initial begin
    $readmemh("../images/load.hex", loads);
    $readmemh("writes.hex", writes);
    $readmemh("expected.hex", expected);
    $readmemh("pages.hex", pages);
    repeat (8) @(negedge clk);
    rst = 0;
    @(negedge clk);
    for (k = 0; k < LOADS; k = k + 1) write(loads[k][57:32], loads[k][31:0]);
    for (k = 0; k < WRITES; k = k + 1) write(writes[k][57:32], writes[k][31:0]);
    while (!interrupt && cycles < PATIENCE) begin
      @(negedge clk);
      cycles = cycles + 1;
    end
    if (!interrupt) begin
      $display("no interrupt in %0d cycles", cycles);
      errors = errors + 1;
    end
    write(INTERRUPT, 32'd1);
    for (k = 0; k < EXPECTED; k = k + 1) begin
      read(expected[k][57:32], word);
      if (word !== expected[k][31:0]) begin
        if (errors < 10) $display("%h holds %h, expected %h", expected[k][57:32], word, expected[k][31:0]);
        errors = errors + 1;
      end
    end
    if (interrupt) begin
      $display("the interrupt was cleared and is still there");
      errors = errors + 1;
    end
    if (errors == 0) $display("PASS %0d words as expected, %0d cycles of training", EXPECTED, cycles);
    else $display("FAIL %0d errors", errors);
    $finish;
  end
endmodule
