// A board between a host's memory and a driver, both made of plain Verilog 2001: runs in Verilator and in Icarus.
//
// In: what a driver writes to load the machine (../images/load.hex) and to train (writes.hex), pages (pages.hex), rows of
// records at first (starts.hex; all others are 0), words that the board must then hold (expected.hex), what records must
// then be (records.hex) in which bits (held.hex; in all where it has no row), and what the last epoch must have taken
// (counters.hex); then steps (scenarios.hex) of what must be rejected, fail, stop and go on, with a page of their own
// (scenario_pages.hex). Out: a line that starts with PASS or FAIL. +STALL=n, 0 to 255: buses of memories pause in n of 256
// cycles, at random, and counters are not compared.
`timescale 1ns / 1ps
@DEFINES@

module testbench;
  integer stall = 0;
  localparam DATA_BITS = @DATA_BITS@;
  localparam BEATS = @BEATS@;            // of all pages
  localparam MORE_BEATS = @MORE_BEATS@;  // of those of the scenarios, which follow
  localparam STEPS = @STEPS@;
  localparam SLOP = 64;                  // cycles that the driver takes to start, and to see the end
@ACTS@
  localparam LOADS = @LOADS@;
  localparam WRITES = @WRITES@;
  localparam EXPECTED = @EXPECTED@;
  localparam [63:0] PATIENCE = 64'd@PATIENCE@;  // cycles to wait for the interrupt, where no bus pauses
  localparam COUNTERS = @COUNTERS@;
  localparam LATENCY = @LATENCY@;        // cycles from an address to its first beat
  localparam PAGE_BEATS = @PAGE_BEATS@;
  localparam PAGE_CYCLES = @PAGE_CYCLES@;  // from a page's first beat to its last, both included
  localparam QUEUE = @QUEUE@;            // bursts that a memory remembers
  localparam [63:0] BASE = 64'h@BASE@;
  localparam [25:0] INTERRUPT_REGISTER = 26'h@INTERRUPT@;
  localparam [25:0] CYCLES_REGISTER = 26'h@CYCLES@;  // of the training

`ifdef RECORDS
  localparam ROW_BITS = @ROW_BITS@;
  localparam ROWS = @ROWS@;              // of all tables, what lies between records included
  localparam RECORD_LATENCY = @RECORD_LATENCY@;
  localparam [63:0] RECORD_BASE = 64'h@RECORD_BASE@;
`endif

  integer errors = 0;
`define WRONG(said) begin if (errors < 10) $display said; errors = errors + 1; end
  reg clk = 0, rst = 1;
  always #5 clk = ~clk;

  // what is written and read at the control bus: byte address in the upper half, word in the lower
  reg [63:0] loads [0:LOADS - 1];
  reg [63:0] writes [0:WRITES - 1];
  reg [63:0] expected [0:EXPECTED - 1];
  reg [63:0] counters [0:COUNTERS - 1];
  reg [71:0] steps [0:STEPS - 1];        // act, address, word
  reg [DATA_BITS - 1:0] pages [0:BEATS + MORE_BEATS - 1];

  reg [25:0] awaddr = 0, araddr = 0;
  reg awvalid = 0, wvalid = 0, bready = 0, arvalid = 0, rready = 0;
  reg [31:0] wdata = 0;
  reg [3:0] wstrb = 4'hf;
  wire awready, wready, bvalid, arready, rvalid;
  wire [1:0] bresp, rresp;
  wire [31:0] rdata;

  wire [63:0] page_address;
  wire [7:0] page_length;
  wire page_asked;
  wire page_taken;
  reg page_ready = 0, page_valid = 0, page_last = 0;
  reg silent = 0;                        // accepts and answers nothing
  reg [1:0] page_response = 0, bad_response = 0;
  reg [31:0] bad_beat = 0;
  reg [DATA_BITS - 1:0] page_data = 0;
  wire interrupt;

`ifdef RECORDS
  wire [63:0] get_address, put_address;
  wire [7:0] get_length, put_length;
  wire get_asked, got_taken, put_asked, given_valid, given_last, answer_taken;
  wire [ROW_BITS - 1:0] given;
  wire [ROW_BITS / 8 - 1:0] given_bytes;
  reg get_ready = 0, got_valid = 0, got_last = 0, put_ready = 0, given_ready = 0, answer_valid = 0;
  reg [1:0] got_response = 0, answer_response = 0;
  reg [ROW_BITS - 1:0] got = 0;
  reg [ROW_BITS - 1:0] records [0:ROWS - 1];
  reg [ROW_BITS - 1:0] wanted [0:ROWS - 1];
  reg [ROW_BITS - 1:0] held [0:ROWS - 1];
`endif

  @TOP@ board (
    .clk(clk), .rst(rst), .irq(interrupt),
    .s_axil_awaddr(awaddr), .s_axil_awprot(3'b000), .s_axil_awvalid(awvalid), .s_axil_awready(awready),
    .s_axil_wdata(wdata), .s_axil_wstrb(wstrb), .s_axil_wvalid(wvalid), .s_axil_wready(wready),
    .s_axil_bresp(bresp), .s_axil_bvalid(bvalid), .s_axil_bready(bready),
    .s_axil_araddr(araddr), .s_axil_arprot(3'b000), .s_axil_arvalid(arvalid), .s_axil_arready(arready),
    .s_axil_rdata(rdata), .s_axil_rresp(rresp), .s_axil_rvalid(rvalid), .s_axil_rready(rready),
    .m_axi_arid(), .m_axi_araddr(page_address), .m_axi_arlen(page_length), .m_axi_arsize(), .m_axi_arburst(),
    .m_axi_arlock(), .m_axi_arcache(), .m_axi_arprot(), .m_axi_arvalid(page_asked), .m_axi_arready(page_ready),
`ifdef RECORDS
    .m_axi_records_arid(), .m_axi_records_araddr(get_address), .m_axi_records_arlen(get_length),
    .m_axi_records_arsize(), .m_axi_records_arburst(), .m_axi_records_arlock(), .m_axi_records_arcache(),
    .m_axi_records_arprot(), .m_axi_records_arvalid(get_asked), .m_axi_records_arready(get_ready),
    .m_axi_records_rid(1'b0), .m_axi_records_rdata(got), .m_axi_records_rresp(got_response),
    .m_axi_records_rlast(got_last), .m_axi_records_rvalid(got_valid), .m_axi_records_rready(got_taken),
    .m_axi_records_awid(), .m_axi_records_awaddr(put_address), .m_axi_records_awlen(put_length),
    .m_axi_records_awsize(), .m_axi_records_awburst(), .m_axi_records_awlock(), .m_axi_records_awcache(),
    .m_axi_records_awprot(), .m_axi_records_awvalid(put_asked), .m_axi_records_awready(put_ready),
    .m_axi_records_wdata(given), .m_axi_records_wstrb(given_bytes), .m_axi_records_wlast(given_last),
    .m_axi_records_wvalid(given_valid), .m_axi_records_wready(given_ready),
    .m_axi_records_bid(1'b0), .m_axi_records_bresp(answer_response), .m_axi_records_bvalid(answer_valid),
    .m_axi_records_bready(answer_taken),
`endif
    .m_axi_rid(1'b0), .m_axi_rdata(page_data), .m_axi_rresp(page_response), .m_axi_rlast(page_last),
    .m_axi_rvalid(page_valid), .m_axi_rready(page_taken)
  );

  // ---- memories
  // They keep to the cycle contract (docs/machine.md of the project that made this, "Cycles"): bursts in their order, the
  // first beat LATENCY cycles after its address was taken, the others and other bursts right behind it. They act at
  // falling edges, as the driver does; what the rising edge takes is sampled at it.
  reg [63:0] now = 0;
  reg [63:0] noise = 64'h2545f4914f6cdd1d;
`define PAUSES(k) (noise[8 * k +: 8] < stall)

  function [63:0] drawn(input [63:0] from);  // xorshift64
    begin
      drawn = from ^ (from << 13);
      drawn = drawn ^ (drawn >> 7);
      drawn = drawn ^ (drawn << 17);
    end
  endfunction

  always @(posedge clk) begin
    now <= now + 1;
    noise <= drawn(noise);
  end

  reg [63:0] page_first [0:QUEUE - 1];   // of each burst: the cycle of its first beat, if none is before it
  reg [31:0] page_beat [0:QUEUE - 1];
  reg [8:0] page_left [0:QUEUE - 1];
  integer page_asks = 0, page_done = 0;  // bursts so far
  integer page_head;
  reg page_went = 0, page_waits = 0;
  reg [63:0] page_began = 0, page_part;

  always begin
    @(negedge clk);
    if (page_went || rst) page_valid = 0;
    if (rst) page_done = page_asks;
    page_ready = page_asks - page_done < QUEUE && !silent && !`PAUSES(0);
    page_head = page_done % QUEUE;
    if (!page_valid && page_asks != page_done && !silent && now >= page_first[page_head]) begin
      page_part = page_beat[page_head] % PAGE_BEATS;
      if (page_part == 0 && !page_waits) page_began = now;
      page_waits = page_part == 0;
      // beat k of the n of a page comes when (k + 1) / n of the page's cycles are over
      if (now + 1 >= page_began + ((page_part + 1) * PAGE_CYCLES + PAGE_BEATS - 1) / PAGE_BEATS && !`PAUSES(1)) begin
        page_valid = 1;
        page_data = pages[page_beat[page_head]];
        page_response = page_beat[page_head] == bad_beat ? bad_response : 2'b00;
        page_last = page_left[page_head] == 9'd1;
      end
    end
    @(posedge clk);
    page_went = page_valid & page_taken;
    if (page_went) begin
      page_beat[page_head] = page_beat[page_head] + 1;
      page_left[page_head] = page_left[page_head] - 9'd1;
      if (page_left[page_head] == 0) page_done = page_done + 1;
    end
    if (page_asked & page_ready) begin
      if (page_address < BASE || page_address - BASE >= (BEATS + MORE_BEATS) * (DATA_BITS / 8))
        `WRONG(("a burst at %h is outside the pages", page_address))
      page_first[page_asks % QUEUE] = now + LATENCY;
      page_beat[page_asks % QUEUE] = (page_address - BASE) / (DATA_BITS / 8);
      page_left[page_asks % QUEUE] = {1'b0, page_length} + 9'd1;
      page_asks = page_asks + 1;
    end
  end

`ifdef RECORDS
  reg [63:0] get_first [0:QUEUE - 1];
  reg [31:0] get_row [0:QUEUE - 1];
  reg [8:0] get_left [0:QUEUE - 1];
  integer gets = 0, get_done = 0, get_head;
  reg [31:0] put_row [0:QUEUE - 1];
  reg [8:0] put_left [0:QUEUE - 1];
  integer puts = 0, put_done = 0, put_head;
  reg [ROW_BITS - 1:0] row [0:QUEUE - 1];  // written, and not in the memory yet: their address may come behind them
  reg row_last [0:QUEUE - 1];
  integer rows = 0, row_done = 0;
  reg [63:0] answer_first [0:QUEUE - 1];
  integer answers = 0, answer_done = 0;
  reg got_went = 0, answer_went = 0;

  always begin
    @(negedge clk);
    if (got_went || rst) got_valid = 0;
    if (answer_went || rst) answer_valid = 0;
    if (rst) begin
      get_done = gets;
      put_done = puts;
      row_done = rows;
      answer_done = answers;
    end
    get_ready = gets - get_done < QUEUE && !`PAUSES(2);
    put_ready = puts - put_done < QUEUE && answers - answer_done < QUEUE && !`PAUSES(3);
    given_ready = rows - row_done < QUEUE && !`PAUSES(4);
    get_head = get_done % QUEUE;
    if (!got_valid && gets != get_done && now >= get_first[get_head] && !`PAUSES(5)) begin
      got_valid = 1;
      got = records[get_row[get_head]];
      got_last = get_left[get_head] == 9'd1;
    end
    if (!answer_valid && answers != answer_done && now >= answer_first[answer_done % QUEUE] && !`PAUSES(6))
      answer_valid = 1;
    @(posedge clk);
    got_went = got_valid & got_taken;
    if (got_went) begin
      get_row[get_head] = get_row[get_head] + 1;
      get_left[get_head] = get_left[get_head] - 9'd1;
      if (get_left[get_head] == 0) get_done = get_done + 1;
    end
    answer_went = answer_valid & answer_taken;
    if (answer_went) answer_done = answer_done + 1;
    if (get_asked & get_ready) begin
      get_first[gets % QUEUE] = now + RECORD_LATENCY;
      get_row[gets % QUEUE] = (get_address - RECORD_BASE) / (ROW_BITS / 8);
      get_left[gets % QUEUE] = {1'b0, get_length} + 9'd1;
      gets = gets + 1;
    end
    if (put_asked & put_ready) begin
      put_row[puts % QUEUE] = (put_address - RECORD_BASE) / (ROW_BITS / 8);
      put_left[puts % QUEUE] = {1'b0, put_length} + 9'd1;
      puts = puts + 1;
    end
    if (given_valid & given_ready) begin
      row[rows % QUEUE] = given;
      row_last[rows % QUEUE] = given_last;
      rows = rows + 1;
      if (given_bytes != {ROW_BITS / 8{1'b1}}) `WRONG(("a row of a record is not written as a whole"))
    end
    while (rows != row_done && puts != put_done) begin
      put_head = put_done % QUEUE;
      records[put_row[put_head]] = row[row_done % QUEUE];
      if (row_last[row_done % QUEUE] != (put_left[put_head] == 9'd1)) `WRONG(("a record does not end with its last row"))
      put_row[put_head] = put_row[put_head] + 1;
      put_left[put_head] = put_left[put_head] - 9'd1;
      row_done = row_done + 1;
      if (put_left[put_head] == 0) begin
        put_done = put_done + 1;
        answer_first[answers % QUEUE] = now + RECORD_LATENCY;
        answers = answers + 1;
      end
    end
  end
`endif

  // ---- driver
  integer k, before;
  reg [63:0] cycles = 0, patience;
  reg [31:0] word;
  reg [63:0] trained;

  // The registers that a file names must hold its words.
  task compare(input [63:0] wanted);
    begin
      read(wanted[57:32], word);
      if (word !== wanted[31:0]) `WRONG(("%h holds %h, expected %h", wanted[57:32], word, wanted[31:0]))
    end
  endtask

  // The driver acts at falling edges, halfway between those at which the board does. What it then sees of the board
  // (ready, valid) is what holds at the next rising edge.
  task put(input [25:0] address, input [31:0] value, input [3:0] bytes, input [1:0] response);
    begin
      awaddr = address;
      wdata = value;
      wstrb = bytes;
      awvalid = 1;
      wvalid = 1;
      while (!(awready && wready)) @(negedge clk);
      @(negedge clk);
      awvalid = 0;
      wvalid = 0;
      bready = 1;
      while (!bvalid) @(negedge clk);
      if (bresp != response) `WRONG(("a write to %h is answered with %0d, expected %0d", address, bresp, response))
      @(negedge clk);
      bready = 0;
    end
  endtask

  task write(input [25:0] address, input [31:0] value);
    put(address, value, 4'hf, 2'b00);
  endtask

  task get(input [25:0] address, input [1:0] response, output [31:0] value);
    begin
      araddr = address;
      arvalid = 1;
      while (!arready) @(negedge clk);
      @(negedge clk);
      arvalid = 0;
      rready = 1;
      while (!rvalid) @(negedge clk);
      value = rdata;
      if (rresp != response) `WRONG(("a read of %h is answered with %0d, expected %0d", address, rresp, response))
      @(negedge clk);
      rready = 0;
    end
  endtask

  task read(input [25:0] address, output [31:0] value);
    get(address, 2'b00, value);
  endtask

  task await_interrupt(output [63:0] waited);
    begin
      waited = 0;
      while (!interrupt && waited < patience) begin
        @(negedge clk);
        waited = waited + 1;
      end
      if (!interrupt) `WRONG(("no interrupt in %0d cycles", waited))
    end
  endtask

  // One step of the scenarios; hwgen/export/scenarios.py of the project that made this says what each is.
  reg [63:0] waited;
  task play(input [71:0] step);
    case (step[71:64])
      WRITE: write(step[57:32], step[31:0]);
      REJECTED_WRITE: put(step[57:32], step[31:0], 4'hf, 2'b10);
      PARTIAL_WRITE: put(step[57:32], step[31:0], 4'h3, 2'b10);
      READ: compare(step[63:0]);
      REJECTED_READ: get(step[57:32], 2'b10, word);
      CLEARED: begin
        waited = 0;
        read(step[57:32], word);
        while ((word & step[31:0]) != 0 && waited < patience) begin
          waited = waited + 8;           // cycles of a read, at the least
          read(step[57:32], word);
        end
        if ((word & step[31:0]) != 0) `WRONG(("%h holds %h after %0d cycles", step[57:32], word, waited))
      end
      INTERRUPT: await_interrupt(waited);
      LINE: if (interrupt != step[0]) `WRONG(("the interrupt's line is %b, expected %b", interrupt, step[0]))
      CYCLES: repeat (step[31:0]) @(negedge clk);
      SILENT: silent = step[0];
      BAD_BEAT: begin
        bad_beat = step[63:32] / (DATA_BITS / 8);
        bad_response = step[1:0];
      end
`ifdef RECORDS
      BAD_RECORDS: {answer_response, got_response} = step[3:0];
`endif
      RESET: begin
        rst = 1;
        repeat (8) @(negedge clk);
        rst = 0;
        @(negedge clk);
      end
      default: `WRONG(("there is no act %0d", step[71:64]))
    endcase
  endtask

  initial begin
    if ($value$plusargs("STALL=%d", stall) && (stall < 0 || stall > 255)) begin
      $display("FAIL: STALL must be 0 to 255, not %0d", stall);
      $finish;
    end
    $readmemh("../images/load.hex", loads);
    $readmemh("writes.hex", writes);
    $readmemh("expected.hex", expected);
    $readmemh("counters.hex", counters);
    $readmemh("scenarios.hex", steps);
    $readmemh("pages.hex", pages, 0, BEATS - 1);
    $readmemh("scenario_pages.hex", pages, BEATS, BEATS + MORE_BEATS - 1);
`ifdef RECORDS
    for (k = 0; k < ROWS; k = k + 1) begin
      records[k] = 0;
      wanted[k] = 0;
      held[k] = ~0;
    end
    $readmemh("starts.hex", records);
    $readmemh("records.hex", wanted);
    $readmemh("held.hex", held);
`endif
    repeat (8) @(negedge clk);
    rst = 0;
    @(negedge clk);
    for (k = 0; k < LOADS; k = k + 1) write(loads[k][57:32], loads[k][31:0]);
    for (k = 0; k < WRITES; k = k + 1) write(writes[k][57:32], writes[k][31:0]);
    patience = PATIENCE * 256 / (256 - stall);
    await_interrupt(cycles);
    write(INTERRUPT_REGISTER, 32'd1);
    for (k = 0; k < EXPECTED; k = k + 1) compare(expected[k]);
    if (stall == 0) for (k = 0; k < COUNTERS; k = k + 1) compare(counters[k]);
    read(CYCLES_REGISTER, trained[31:0]);
    read(CYCLES_REGISTER + 26'd4, trained[63:32]);
    if (trained > cycles + SLOP || trained + SLOP < cycles)
      `WRONG(("the board says that its training took %0d cycles, it took %0d", trained, cycles))
`ifdef RECORDS
    for (k = 0; k < ROWS; k = k + 1)
      if (((records[k] ^ wanted[k]) & held[k]) !== 0)
        `WRONG(("row %0d of the records is %h, expected %h", k, records[k], wanted[k]))
`endif
    if (interrupt) `WRONG(("the interrupt was cleared and is still there"))
    for (k = 0; k < STEPS; k = k + 1) begin
      before = errors;
      play(steps[k]);
      if (errors != before && errors <= 10) $display("that was step %0d of scenarios.hex", k);
    end
    if (errors == 0) $display("PASS %0d words as expected, %0d cycles of training", EXPECTED, trained);
    else $display("FAIL %0d errors", errors);
    $finish;
  end
endmodule
