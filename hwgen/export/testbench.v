// A board between a host's memory and a driver, both made of plain Verilog 2001: runs in Verilator and in Icarus.
//
// In: what a driver writes to load the machine (../images/load.hex) and to train (writes.hex), pages (pages.hex), words
// that the board must then hold (expected.hex), and what records must be then (records.hex), which all are 0 at first.
// Out: a line that starts with PASS or FAIL. STALL > 0 makes buses of memories pause in STALL of 256 cycles, at random.
`timescale 1ns / 1ps
@DEFINES@

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

`ifdef RECORDS
  localparam ROW_BITS = @ROW_BITS@;
  localparam ROWS = @ROWS@;              // of all tables, what lies between records included
  localparam RECORD_LATENCY = @RECORD_LATENCY@;
  localparam [63:0] RECORD_BASE = 64'h@RECORD_BASE@;
`endif

  integer errors = 0;
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

`ifdef RECORDS
  wire [63:0] get_address, put_address;
  wire [7:0] get_length, put_length;
  wire get_asked, got_taken, put_asked, given_valid, given_last, stored_heard;
  wire [ROW_BITS - 1:0] given;
  wire [ROW_BITS / 8 - 1:0] given_bytes;
  reg getting = 0, got_valid = 0, got_last = 0, putting = 0, stored = 0;
  reg [ROW_BITS - 1:0] got = 0;
  reg [ROW_BITS - 1:0] records [0:ROWS - 1];
  reg [ROW_BITS - 1:0] wanted [0:ROWS - 1];
  reg [31:0] get_row = 0, put_row = 0;
  reg [8:0] get_left = 0, put_left = 0;
  reg [15:0] get_delay = 0, put_delay = 0;
  wire taking;
`endif

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
`ifdef RECORDS
    .m_axi_records_arid(), .m_axi_records_araddr(get_address), .m_axi_records_arlen(get_length),
    .m_axi_records_arsize(), .m_axi_records_arburst(), .m_axi_records_arlock(), .m_axi_records_arcache(),
    .m_axi_records_arprot(), .m_axi_records_arvalid(get_asked), .m_axi_records_arready(~getting),
    .m_axi_records_rid(1'b0), .m_axi_records_rdata(got), .m_axi_records_rresp(2'b00),
    .m_axi_records_rlast(got_last), .m_axi_records_rvalid(got_valid), .m_axi_records_rready(got_taken),
    .m_axi_records_awid(), .m_axi_records_awaddr(put_address), .m_axi_records_awlen(put_length),
    .m_axi_records_awsize(), .m_axi_records_awburst(), .m_axi_records_awlock(), .m_axi_records_awcache(),
    .m_axi_records_awprot(), .m_axi_records_awvalid(put_asked), .m_axi_records_awready(~putting),
    .m_axi_records_wdata(given), .m_axi_records_wstrb(given_bytes), .m_axi_records_wlast(given_last),
    .m_axi_records_wvalid(given_valid), .m_axi_records_wready(taking),
    .m_axi_records_bid(1'b0), .m_axi_records_bresp(2'b00), .m_axi_records_bvalid(stored),
    .m_axi_records_bready(stored_heard),
`endif
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

`ifdef RECORDS
  // ---- record memory: one burst at a time in each direction
  assign taking = putting & (put_left != 0) & ~pause;

  always @(posedge clk) begin
    if (got_valid & got_taken) got_valid <= 0;
    if (rst) begin
      getting <= 0;
      got_valid <= 0;
    end else if (~getting) begin
      if (get_asked) begin
        getting <= 1;
        get_row <= (get_address - RECORD_BASE) / (ROW_BITS / 8);
        get_left <= {1'b0, get_length} + 9'd1;
        get_delay <= RECORD_LATENCY;
      end
    end else if (get_delay != 0) begin
      get_delay <= get_delay - 16'd1;
    end else if (get_left == 0) begin
      if (~got_valid | got_taken) getting <= 0;
    end else if ((~got_valid | got_taken) & ~pause) begin
      got_valid <= 1;
      got <= records[get_row];
      got_last <= get_left == 9'd1;
      get_row <= get_row + 1;
      get_left <= get_left - 9'd1;
    end
  end

  always @(posedge clk) begin
    if (rst) begin
      putting <= 0;
      stored <= 0;
    end else if (~putting) begin
      if (put_asked) begin
        putting <= 1;
        put_row <= (put_address - RECORD_BASE) / (ROW_BITS / 8);
        put_left <= {1'b0, put_length} + 9'd1;
        put_delay <= RECORD_LATENCY;
      end
    end else if (put_left != 0) begin
      if (given_valid & taking) begin
        records[put_row] <= given;
        put_row <= put_row + 1;
        put_left <= put_left - 9'd1;
        if (given_last != (put_left == 9'd1) || given_bytes != {ROW_BITS / 8{1'b1}}) begin
          $display("a record of %0d rows is not written as such", put_length + 1);
          errors = errors + 1;
        end
      end
    end else if (put_delay != 0) begin
      put_delay <= put_delay - 16'd1;
    end else if (~stored) begin
      stored <= 1;
    end else if (stored_heard) begin
      stored <= 0;
      putting <= 0;
    end
  end
`endif

  // ---- driver
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
`ifdef RECORDS
    for (k = 0; k < ROWS; k = k + 1) begin
      records[k] = 0;
      wanted[k] = 0;
    end
    $readmemh("records.hex", wanted);
`endif
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
`ifdef RECORDS
    for (k = 0; k < ROWS; k = k + 1)
      if (records[k] !== wanted[k]) begin
        if (errors < 10) $display("row %0d of the records is %h, expected %h", k, records[k], wanted[k]);
        errors = errors + 1;
      end
`endif
    if (interrupt) begin
      $display("the interrupt was cleared and is still there");
      errors = errors + 1;
    end
    if (errors == 0) $display("PASS %0d words as expected, %0d cycles of training", EXPECTED, cycles);
    else $display("FAIL %0d errors", errors);
    $finish;
  end
endmodule
